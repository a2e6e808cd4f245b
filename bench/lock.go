package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// lockPeers are those that the others are compared with.
var lockPeers = []string{"redislock", "redsync"}

// A lockTrial is one locking's turn in one round of the lock suite.
type lockTrial struct {
	*rig
	locking locking
	round   int
}

// lockSuite measures a lock that is free, and one that many want.
func lockSuite(ctx context.Context, r *rig) error {
	for _, measure := range []func(*lockTrial, context.Context) error{(*lockTrial).free, (*lockTrial).saturated, (*lockTrial).loaded} {
		err := takeTurns(ctx, r, "lock", r.rounds, r.lockings, func(ctx context.Context, l locking, round int) error {
			return measure(&lockTrial{r, l, round}, ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// record reports a value of this trial. over says that the true one is higher.
func (t *lockTrial) record(metric, unit string, value float64, over bool) {
	t.note(record{Suite: "lock", System: t.locking.name(), Metric: metric, Value: value, Unit: unit, Round: t.round, Over: over})
}

// open connects as one process with so many callers.
func (t *lockTrial) open(ctx context.Context, callers int, sent *atomic.Int64) (locker, error) {
	return t.locking.open(ctx, t.address(t.locking.kind()), callers, sent)
}

// free measures one caller who takes and gives back locks that nobody else
// wants, each of a name of its own.
func (t *lockTrial) free(ctx context.Context) (err error) {
	if err := t.clear(ctx, t.locking.kind()); err != nil {
		return err
	}
	var sent atomic.Int64
	l, err := t.open(ctx, 1, &sent)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	// Like a request's: it has a deadline, and does not end.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := pairs(ctx, l, lockNames("warm", 50)); err != nil { // connects, loads scripts
		return err
	}
	names := lockNames("free", t.scale.locks)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	commands := sent.Load()
	took, err := pairs(ctx, l, names)
	if err != nil {
		return err
	}
	commands = sent.Load() - commands
	runtime.ReadMemStats(&after)
	slices.Sort(took)
	n := float64(len(names))
	t.record("free, acquire + release, p50", "µs", quantile(took, 0.5), false)
	t.record("free, acquire + release, p99", "µs", quantile(took, 0.99), false)
	t.record("free, Go allocations a pair", "allocations", float64(after.Mallocs-before.Mallocs)/n, false)
	t.record("free, Go memory a pair", "bytes", float64(after.TotalAlloc-before.TotalAlloc)/n, false)
	t.record("free, commands a pair", "commands", float64(commands)/n, false)
	return nil
}

// pairs takes and gives back each lock, and returns the µs of each.
func pairs(ctx context.Context, l locker, names []string) ([]float64, error) {
	took := make([]float64, len(names))
	for i, name := range names {
		start := time.Now()
		lock, err := l.acquire(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := lock.release(ctx); err != nil {
			return nil, err
		}
		took[i] = perTask(time.Since(start), 1)
	}
	return took, nil
}

// lockNames are n names that begin alike.
func lockNames(begin string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%06d", begin, i)
	}
	return names
}
