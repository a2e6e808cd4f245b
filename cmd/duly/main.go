// Command duly shows and mends the queues of a Redis: what waits, what runs,
// what died, and why.
//
// Its exit status is 0 if all went well, 1 if it did not, 2 if the command line
// is wrong; and of wait 3, 4 or 5 if the task was dropped, buried or cancelled, and 6
// if the run of one that recurs was not done.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/dulyhq/duly/queue"
)

const usage = `duly shows and mends queues of delayed tasks on Redis.

    duly [-redis URL] [-prefix PREFIX] [-json] COMMAND ...

Commands:
%s
'duly COMMAND -h' lists a command's flags. -redis is redis://host:port/db, or
rediss:// for TLS; by default $REDIS_URL, or else redis://127.0.0.1:6379.
`

// errUsage marks what is wrong with the command line.
var errUsage = errors.New("usage")

// A command is one verb of the tool.
type command struct {
	name, args, help string
	run              func(ctx context.Context, t *tool, args []string) error
}

func commands() []command {
	return []command{
		{"stats", "QUEUE", "count tasks by state, and how late the queue is", stats},
		{"list", "QUEUE", "list tasks of a state, the earliest first", list},
		{"get", "QUEUE ID", "show one task", get},
		{"enqueue", "QUEUE KIND", "add a task, its payload from a flag or standard input", enqueue},
		{"wait", "QUEUE ID", "wait until a task has ended; status 3 dropped, 4 buried, 5 cancelled, 6 a run not done", wait},
		{"cancel", "QUEUE ID...", "remove tasks that have not started, or with -running any", cancel},
		{"reschedule", "QUEUE ID", "make a task due at another time", reschedule},
		{"revive", "QUEUE [ID...]", "make dead tasks due again", revive},
		{"purge", "QUEUE", "remove dead tasks for good", purge},
		{"pause", "QUEUE", "stop popping", pause},
		{"resume", "QUEUE", "pop again", resume},
		{"limit", "QUEUE", "show or set how many tasks run at once, and how many start in a second", limit},
		{"doctor", "", "check that Redis is set up to keep tasks", doctor},
	}
}

// A tool is what commands share: where Redis is, and how to answer.
type tool struct {
	rdb    redis.UniversalClient
	prefix string
	in     io.Reader
	out    printer
}

func main() {
	logging.Disable() // what fails is told once, by the command
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// run is main with its surroundings as arguments.
func run(ctx context.Context, args []string, env func(string) string, in io.Reader, out, errs io.Writer) int {
	flags := flag.NewFlagSet("duly", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	url := flags.String("redis", env("REDIS_URL"), "")
	prefix := flags.String("prefix", "duly", "")
	asJSON := flags.Bool("json", false, "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		printUsage(out)
		return 0
	}
	if err == nil && flags.NArg() == 0 {
		printUsage(errs)
		return 2
	}
	if err != nil {
		_, _ = fmt.Fprintf(errs, "duly: %v\n", err)
		return 2
	}
	name, rest := flags.Arg(0), flags.Args()[1:]
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	if i < 0 {
		_, _ = fmt.Fprintf(errs, "duly: no command %q; 'duly -h' lists them\n", name)
		return 2
	}
	rdb, err := connect(*url)
	if err != nil {
		_, _ = fmt.Fprintf(errs, "duly: %v\n", err)
		return 2
	}
	defer func() { _ = rdb.Close() }()
	t := &tool{rdb: rdb, prefix: *prefix, in: in, out: printer{out, *asJSON}}
	err = all[i].run(ctx, t, rest)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprintf(out, "duly %s %s [flags]: %s\n%v\n", name, all[i].args, all[i].help, err)
		return 0
	case errors.Is(err, errUsage), errors.Is(err, queue.ErrInvalid):
		_, _ = fmt.Fprintf(errs, "duly %s: %v\nusage: duly %s %s [flags]\n", name, err, name, all[i].args)
		return 2
	}
	_, _ = fmt.Fprintf(errs, "duly %s: %v\n", name, err)
	if ended := (endedError{}); errors.As(err, &ended) {
		return ended.status()
	}
	return 1
}

func printUsage(w io.Writer) {
	var b strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&b, "    %-26s %s\n", c.name+" "+c.args, c.help)
	}
	_, _ = fmt.Fprintf(w, usage, b.String())
}

// connect makes a client; its errors do not repeat the URL, which may hold a
// password.
func connect(url string) (*redis.Client, error) {
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("-redis or $REDIS_URL is not a URL like redis://host:port/db")
	}
	opts.ContextTimeoutEnabled = true
	return redis.NewClient(opts), nil
}

// queue parses a command's flags, which may stand before or after its
// arguments, and opens the queue that the first one names.
func (t *tool) queue(flags *flag.FlagSet, args []string, least, most int) (*queue.Queue, []string, error) {
	flags.SetOutput(io.Discard)
	flags.BoolVar(&t.out.json, "json", t.out.json, "answer in JSON, one object a line")
	var words []string
	for {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, nil, help{defaults(flags)}
			}
			return nil, nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		if flags.NArg() == 0 {
			break
		}
		words, args = append(words, flags.Arg(0)), flags.Args()[1:]
	}
	if len(words) < least || most >= 0 && len(words) > most {
		return nil, nil, fmt.Errorf("%w: %d arguments", errUsage, len(words))
	}
	q, err := queue.New(t.rdb, words[0], queue.Config{Prefix: t.prefix})
	return q, words[1:], err
}

// help is the flag.ErrHelp that shows a command's flags.
type help struct{ text string }

func (h help) Error() string { return h.text }

func (h help) Is(target error) bool { return target == flag.ErrHelp }

func defaults(flags *flag.FlagSet) string {
	var b strings.Builder
	flags.SetOutput(&b)
	flags.PrintDefaults()
	return strings.TrimRight(b.String(), "\n")
}
