package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Who wants the lock in a contest, and what for.
const (
	lockClients = 4 // processes, as it were
	lockCallers = 8 // of each client

	lockHold  = 5 * time.Millisecond
	lockThink = 225 * time.Millisecond // on average: 32 × 5 ms in 5 + 225 ms are 70 % of the time
)

// errShared says that a lock did not exclude.
var errShared = errors.New("two hold the lock at a time")

// saturated measures a lock that is never free: whoever gives it back wants it
// again at once.
func (t *lockTrial) saturated(ctx context.Context) error {
	c, err := t.contest(ctx, 0)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("%d waiters, ", len(c.callers))
	fewest, most, all := c.shares()
	t.record(at+"handovers", "handovers/s", float64(all)/c.took.Seconds(), false)
	c.recordWaits(t, at)
	t.record(at+"fewest acquisitions of one", "acquisitions", float64(fewest), false)
	t.record(at+"most acquisitions of one", "acquisitions", float64(most), false)
	t.record(at+"commands a handover", "commands", float64(c.sent)/float64(max(all, 1)), false)
	return nil
}

// loaded measures a lock that is held for 70 % of the time.
func (t *lockTrial) loaded(ctx context.Context) error {
	c, err := t.contest(ctx, lockThink)
	if err != nil {
		return err
	}
	c.recordWaits(t, "70 % load, ")
	return nil
}

// A contest is many callers that want one lock again and again.
type contest struct {
	name    string
	think   time.Duration // on average, before a caller wants it again
	callers []*caller
	holders atomic.Int32

	took time.Duration
	sent int64 // commands
}

// A caller is one of them, with the use of a client.
type caller struct {
	locker
	random *rand.Rand
	waits  []wait
}

// A wait is how long a caller waited for the lock. One that the end of the
// contest cut short is in truth longer. It counts, or a caller who never gets the
// lock would not show.
type wait struct {
	took time.Duration
	cut  bool
}

// contest runs one, on clients of its own.
func (t *lockTrial) contest(ctx context.Context, think time.Duration) (c *contest, err error) {
	if err := t.clear(ctx, t.locking.kind()); err != nil {
		return nil, err
	}
	// A name for each: what is left of a contest must not disturb the next.
	c = &contest{name: fmt.Sprintf("contest-%d-%d", think.Milliseconds(), t.round), think: think}
	var sent atomic.Int64
	for i := range lockClients {
		l, err := t.open(ctx, lockCallers, &sent)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		for j := range lockCallers {
			// Every locking meets the same pauses.
			pauses := rand.New(rand.NewPCG(uint64(t.round), uint64(i*lockCallers+j))) //nolint:gosec // secures nothing
			c.callers = append(c.callers, &caller{locker: l, random: pauses})
		}
	}
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	return c, c.run(ctx, t.scale.contest, &sent)
}

// warm connects and loads scripts: each caller takes a lock of its own.
func (c *contest) warm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	for i, name := range lockNames("warm", len(c.callers)) {
		all.Go(func() error {
			_, err := pairs(ctx, c.callers[i], []string{name})
			return err
		})
	}
	return all.Wait()
}

// run lets the callers contend for some time.
func (c *contest) run(ctx context.Context, long time.Duration, sent *atomic.Int64) error {
	bounded, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	all, bounded := errgroup.WithContext(bounded)
	start, before := time.Now(), sent.Load()
	for _, one := range c.callers {
		all.Go(func() error { return one.contend(bounded, ctx, c) })
	}
	<-bounded.Done()
	c.took, c.sent = time.Since(start), sent.Load()-before
	return errors.Join(all.Wait(), ctx.Err())
}

// contend wants the lock until bounded ends, and gives it back under ctx.
func (w *caller) contend(bounded, ctx context.Context, c *contest) error {
	for bounded.Err() == nil {
		if c.think > 0 && pause(bounded, time.Duration(w.random.ExpFloat64()*float64(c.think))) != nil {
			return nil
		}
		began := time.Now()
		lock, err := w.acquire(bounded, c.name)
		cut := err != nil && bounded.Err() != nil
		if err == nil || cut {
			w.waits = append(w.waits, wait{time.Since(began), cut})
		}
		switch {
		case cut:
			return nil
		case err != nil:
			return err
		}
		if err := errors.Join(c.hold(), lock.release(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// hold is what the lock is for. It fails if another is at it.
func (c *contest) hold() error {
	shared := c.holders.Add(1) > 1
	time.Sleep(lockHold)
	if c.holders.Add(-1) > 0 || shared {
		return errShared
	}
	return nil
}

// shares are the acquisitions of the caller with the fewest, of the one with the
// most, and of all.
func (c *contest) shares() (fewest, most, all int) {
	counts := make([]int, len(c.callers))
	for i, w := range c.callers {
		for _, wait := range w.waits {
			if !wait.cut {
				counts[i]++
			}
		}
		all += counts[i]
	}
	return slices.Min(counts), slices.Max(counts), all
}

// recordWaits reports what the callers waited.
func (c *contest) recordWaits(t *lockTrial, at string) {
	var waits []wait
	for _, one := range c.callers {
		waits = append(waits, one.waits...)
	}
	sortWaits(waits)
	for _, of := range []struct {
		what string
		part float64
	}{{"p50", 0.5}, {"p99", 0.99}, {"max", 1}} {
		w := waitQuantile(waits, of.part)
		t.record(at+"wait "+of.what, "ms", w.took.Seconds()*1000, w.cut)
	}
}

func sortWaits(waits []wait) {
	slices.SortFunc(waits, func(a, b wait) int {
		if a.took == b.took && a.cut != b.cut { // the one that was cut is longer
			if a.cut {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.took, b.took)
	})
}

// waitQuantile is a quantile of sorted waits of which some were cut short: the
// estimate of Kaplan and Meier ('Nonparametric estimation from incomplete
// observations', 1958). Without a cut it is the nearest rank. Where too many were
// cut to tell, it is the longest wait, as a bound.
func waitQuantile(sorted []wait, q float64) wait {
	const rounding = 1e-9
	longer := 1.0 // the share of waits that are longer than those so far
	for i, w := range sorted {
		if w.cut {
			continue
		}
		rest := float64(len(sorted) - i)
		longer *= (rest - 1) / rest
		if longer <= 1-q+rounding {
			return w
		}
	}
	return wait{sorted[len(sorted)-1].took, true}
}
