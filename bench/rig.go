package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// A rig is what a suite has: the servers, the systems that run on them, and the
// report.
type rig struct {
	systems  []system
	lockings []locking
	rounds   int
	scale    scale
	redis    *redisServer // nil if not installed
	postgres *postgresServer
	report   *report
	log      io.Writer // what is going on
}

// A suite measures one thing of every system.
type suite struct {
	name string
	what string
	run  func(ctx context.Context, r *rig) error

	// against are the contenders that the others are compared with. Default:
	// peer and ceiling.
	against []string

	// aside suites only wait, so those behind them run meanwhile.
	aside bool
}

// A trial is one system's turn in one round of a suite.
type trial struct {
	*rig
	suite string
	sys   system
	round int
}

// A leaveOut says of some systems why a suite leaves them out.
type leaveOut map[string]string

// alternate gives every system its turn, round by round: A B C A B C. What is
// left out is said; a measurement that fails is kept for the end of the run.
func (r *rig) alternate(ctx context.Context, suite string, rounds int, out leaveOut, measure func(context.Context, *trial) error) error {
	return takeTurns(ctx, r, suite, rounds, r.without(suite, out), func(ctx context.Context, sys system, round int) error {
		return measure(ctx, &trial{r, suite, sys, round})
	})
}

// takeTurns is alternate for contenders of any kind.
func takeTurns[C contender](
	ctx context.Context, r *rig, suite string, rounds int, all []C, measure func(context.Context, C, int) error,
) error {
	for round := 1; round <= rounds; round++ {
		for _, c := range all {
			if err := measure(ctx, c, round); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				r.fail(fmt.Errorf("%s, %s, round %d: %w", suite, c.name(), round, err))
			}
		}
	}
	return nil
}

// without returns the systems that a suite measures, and says which it does not.
func (r *rig) without(suite string, out leaveOut) []system {
	return slices.DeleteFunc(slices.Clone(r.systems), func(s system) bool {
		if s.name() == leasedCeiling && suite != "process" && suite != "cpu" {
			return true // it would be raw once more
		}
		why, is := out[s.name()]
		if is {
			r.say("%s leaves out %s: %s", suite, s.name(), why)
		}
		return is
	})
}

func (r *rig) fail(err error) {
	r.say("FAILED %v", err)
	r.report.fail(err)
}

func (r *rig) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.log, format+"\n", args...)
}

// record reports a value of this trial.
func (t *trial) record(metric, unit string, value float64) {
	t.note(record{Suite: t.suite, System: t.sys.name(), Metric: metric, Value: value, Unit: unit, Round: t.round})
}

// note adds a record to the report, and says it.
func (r *rig) note(rec record) {
	r.report.add(rec)
	bound := ""
	if rec.Over {
		bound = "> "
	}
	r.say("%-9s %-12s %-42s %12s %s", rec.Suite, rec.System, rec.Metric, bound+number(rec.Value), rec.Unit)
}

// addr is where the trial's server listens.
func (t *trial) addr() string { return t.address(t.sys.kind()) }

// address is where a server listens.
func (r *rig) address(kind serverKind) string {
	if kind == onPostgres {
		return r.postgres.url
	}
	return r.redis.addr
}

// open empties the server and connects the system to it.
func (t *trial) open(ctx context.Context) (session, error) {
	if err := t.clear(ctx, t.sys.kind()); err != nil {
		return nil, err
	}
	return t.sys.open(ctx, t.addr())
}

// clear empties a server.
func (r *rig) clear(ctx context.Context, kind serverKind) error {
	if kind == onPostgres {
		return r.postgres.clear(ctx)
	}
	return r.redis.clear(ctx)
}

// cpu is what Redis has used so far; zero for a system that is not on it.
func (t *trial) cpu(ctx context.Context) (time.Duration, error) {
	if t.sys.kind() != onRedis {
		return 0, nil
	}
	return t.redis.cpu(ctx)
}

// recordCPU reports the µs that Redis used for a task, in the cpu suite.
func (t *trial) recordCPU(metric string, us float64) {
	if t.sys.kind() == onRedis {
		in := *t
		in.suite = "cpu"
		in.record(metric, "µs", us)
	}
}

// perTask is the µs of a duration for each of n tasks.
func perTask(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }

// enough says that a trial need not be: of these systems one round takes so many
// seconds that more of them would change nothing but the length of a run.
func (t *trial) enough(slow ...string) bool {
	if !slices.Contains(slow, t.sys.name()) {
		return false
	}
	if t.round == 2 {
		t.say("%s measures %s in one round, for it takes long", t.suite, t.sys.name())
	}
	return t.round > 1
}

// settled waits until only rest tasks are left: a task that has run counts once
// its system knows.
func settled(ctx context.Context, s session, rest int) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		n, err := s.unsettled(ctx)
		switch {
		case err != nil:
			return err
		case n == rest:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d tasks are left where there should be %d", n, rest)
		}
	}
}

// closing joins what closing a session returns to err.
func closing(s session, err *error) {
	*err = errors.Join(*err, s.close())
}
