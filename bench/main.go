// Command bench compares duly with its peers, and with what Redis allows, in
// one run on servers of its own. README.md says how to read what it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
)

// suites are all there are, in the order in which they run.
func suites() []suite {
	return []suite{
		{name: "enqueue", what: "tasks taken a second, each due in 15 minutes", run: enqueueSuite},
		{name: "process", what: "tasks run a second by one worker process", run: processSuite},
		{name: "cpu", what: "Redis CPU a task, as enqueue and process have seen it", run: cpuSuite},
		{name: "lateness", what: "how long after its due time a handler begins", run: latenessSuite},
		{name: "burst", what: "100,000 tasks due in the same second", run: burstSuite},
		{name: "backlog", what: "the rates with many other tasks pending, and SLOWLOG", run: backlogSuite},
		{name: "rtt", what: "tasks run a second over a round trip of 1 ms", run: rttSuite},
		{name: "crash", what: "from the SIGKILL of a worker until another runs its task; takes minutes", run: crashSuite, aside: true},
		{name: "memory", what: "bytes of Redis for a pending task", run: memorySuite},
		{name: "idle", what: "commands of an idle worker, and Redis CPU for 100 of them", run: idleSuite},
		{name: "lock", what: "a lock taken and given back, by one and by 32 who want the same", run: lockSuite, against: lockPeers},
	}
}

// systems are all there are, in the order of their turns.
func systems() []system {
	return []system{
		dulySystem{}, asynqSystem{}, asynqSystem{tuned: true}, rawSystem{}, rawSystem{leased: true}, riverSystem{}, riverSystem{tuned: true},
	}
}

// lockings are all the systems of locks there are, in the order of their turns.
func lockings() []locking {
	return []locking{dulyLocking{}, redislockLocking{}, redsyncLocking{}, advisoryLocking{}}
}

// contenders are the names of all, in the order in which tables show them.
func contenders() []string {
	var all []string
	for _, s := range systems() {
		all = append(all, s.name())
	}
	for _, l := range lockings() {
		if !slices.Contains(all, l.name()) {
			all = append(all, l.name())
		}
	}
	return all
}

func main() {
	if child := os.Getenv(childEnv); child != "" {
		os.Exit(runChild(child))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	suites, systems string
	rounds          int
	quick           bool
	sizes           string
	out             string
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.suites, "suites", "", "comma list of suites; default all")
	flags.StringVar(&o.systems, "systems", "", "comma list of systems; default all")
	flags.IntVar(&o.rounds, "rounds", 3, "how often every system has its turn")
	flags.BoolVar(&o.quick, "quick", false, "one round of small counts, without the crash suite and the tuned systems: shows that it runs, not how fast")
	flags.StringVar(&o.sizes, "sizes", "10000,1000000,5000000", "pending tasks of the backlog suite; what memory does not allow is left out")
	flags.StringVar(&o.out, "out", filepath.Join("out", "latest.jsonl"), "file of single measurements, one JSON object a line")
	flags.Usage = func() { usage(flags, stderr) }
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("-rounds %d is under 1", o.rounds)
	}
	return o, nil
}

func usage(flags *flag.FlagSet, w io.Writer) {
	var b strings.Builder
	b.WriteString("bench compares duly with its peers on servers that it starts itself.\n\nFlags:\n")
	_, _ = io.WriteString(w, b.String())
	flags.PrintDefaults()
	b.Reset()
	b.WriteString("\nSuites:\n")
	for _, s := range suites() {
		fmt.Fprintf(&b, "  %-10s %s\n", s.name, s.what)
	}
	b.WriteString("\nSystems:\n")
	for _, s := range systems() {
		fmt.Fprintf(&b, "  %-12s on %s\n", s.name(), s.kind())
	}
	b.WriteString("\nSystems of the lock suite:\n")
	for _, l := range lockings() {
		fmt.Fprintf(&b, "  %-12s on %s\n", l.name(), l.kind())
	}
	_, _ = io.WriteString(w, b.String())
}

// run does what the arguments say. Tables go to stdout, what is going on to log.
func run(ctx context.Context, args []string, stdout, log io.Writer) (err error) {
	o, err := parse(args, log)
	if err != nil {
		return err
	}
	r := &rig{rounds: o.rounds, scale: fullScale(), log: log}
	if o.quick {
		r.rounds, r.scale = 1, quickScale()
	} else if r.scale.backlog, err = parseSizes(o.sizes); err != nil {
		return err
	}
	chosen, err := choose(suites(), o.suites, func(s suite) string { return s.name })
	if err != nil {
		return err
	}
	if o.quick && o.systems == "" {
		o.systems = "duly,asynq,raw,river,redislock,redsync,pg-advisory" // the tuned ones are the same code
	}
	if o.quick && o.suites == "" {
		chosen = slices.DeleteFunc(chosen, func(s suite) bool { return s.name == "crash" })
	}
	names, err := choose(contenders(), o.systems, func(name string) string { return name })
	if err != nil {
		return err
	}
	r.systems, r.lockings = named(systems(), names), named(lockings(), names)
	if err := os.MkdirAll(filepath.Dir(o.out), 0o750); err != nil {
		return err
	}
	file, err := os.Create(o.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	r.report = newReport(file)
	if err := r.startServers(ctx); err != nil {
		return err
	}
	defer r.stopServers()
	if err := r.describe(ctx, stdout); err != nil {
		return err
	}
	err = r.runSuites(ctx, chosen) // what has been measured is shown in any case
	return errors.Join(err, writeTables(stdout, r.report.summaries(), suites()), r.report.failure())
}

// runSuites runs suites one after the other, those behind one that only waits
// beside it.
func (r *rig) runSuites(ctx context.Context, chosen []suite) error {
	waiting, ctx := errgroup.WithContext(ctx)
	for _, s := range chosen {
		if s.aside {
			waiting.Go(func() error { return r.runSuite(ctx, s) })
			continue
		}
		if err := r.runSuite(ctx, s); err != nil {
			waiting.Go(func() error { return err }) // ends those that wait
			break
		}
	}
	return waiting.Wait()
}

// runSuite runs a suite on a Redis of its own.
func (r *rig) runSuite(ctx context.Context, s suite) (err error) {
	own := *r
	if _, missing := exec.LookPath("redis-server"); missing == nil {
		if own.redis, err = startRedis(ctx); err != nil {
			return err
		}
		defer own.redis.stop()
	}
	if err := s.run(ctx, &own); err != nil {
		return fmt.Errorf("suite %s: %w", s.name, err)
	}
	return nil
}

// choose picks those of a comma list, in the order in which they stand in all.
func choose[T any](all []T, list string, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	wanted := strings.Split(list, ",")
	for _, w := range wanted {
		if !slices.ContainsFunc(all, func(x T) bool { return name(x) == w }) {
			return nil, fmt.Errorf("there is no %q; -h lists what there is", w)
		}
	}
	return slices.DeleteFunc(all, func(x T) bool { return !slices.Contains(wanted, name(x)) }), nil
}

// named are the contenders of the given names.
func named[C contender](all []C, names []string) []C {
	return slices.DeleteFunc(all, func(c C) bool { return !slices.Contains(names, c.name()) })
}
