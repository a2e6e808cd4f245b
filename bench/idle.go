package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	idleSettle  = 3 * time.Second // until a worker's start is over
	idleWorkers = 100
	idleRate    = 10 // tasks a second among all of them
)

// idleSuite measures what workers with little or nothing to do cost Redis, in
// one round.
func idleSuite(ctx context.Context, r *rig) error {
	const other = "its server is not Redis"
	out := leaveOut{"raw": "it polls as often as it is told to", "river": other, "river-tuned": other}
	if err := r.alone(ctx, out); err != nil {
		return err
	}
	return r.alternate(ctx, "idle", 1, out, func(ctx context.Context, t *trial) error { return t.crowd(ctx) })
}

// alone watches one worker of each system side by side, each on a server of its
// own, for they only wait.
func (r *rig) alone(ctx context.Context, out leaveOut) error {
	systems := r.without("idle", out)
	failed := make([]error, len(systems))
	var wg sync.WaitGroup
	for i, sys := range systems {
		wg.Go(func() {
			server, err := startRedis(ctx)
			if err != nil {
				failed[i] = err
				return
			}
			defer server.stop()
			own := *r
			own.redis = server
			t := &trial{&own, "idle", sys, 1}
			if err := t.watch(ctx); err != nil {
				failed[i] = fmt.Errorf("idle, %s: %w", sys.name(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// watch counts the commands that Redis carries out for one idle worker, those
// inside scripts included, and the reads of requests, which a script or a
// pipeline is one of.
func (t *trial) watch(ctx context.Context) (err error) {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer closing(s, &err)
	stop, err := s.work(ctx, 10, func(string) {})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := pause(ctx, idleSettle); err != nil {
		return err
	}
	const commands, reads = "total_commands_processed", "total_reads_processed"
	before, err := t.counters(ctx, commands, reads)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := pause(ctx, t.scale.idle); err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	after, err := t.counters(ctx, commands, reads)
	if err != nil {
		return err
	}
	// Between the two readings of a counter there are two INFO of this program;
	// a reading does not count itself as a command, but as a read.
	t.record("commands of an idle worker", "commands/s", (after[0]-before[0]-2)/took)
	t.record("requests of an idle worker", "requests/s", (after[1]-before[1]-2)/took)
	return nil
}

// counters reads counters of the server, each by an INFO.
func (t *trial) counters(ctx context.Context, names ...string) ([]float64, error) {
	values := make([]float64, len(names))
	for i, name := range names {
		var err error
		if values[i], err = t.redis.info(ctx, "stats", name); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// crowd measures the share of a CPU that Redis uses for many workers that have a
// few tasks among them.
func (t *trial) crowd(ctx context.Context) (err error) {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer closing(s, &err)
	n := int(idleRate * (idleSettle + t.scale.idle/2).Seconds())
	count := newTally(n, 0)
	var stopping sync.WaitGroup
	defer stopping.Wait()
	for range idleWorkers {
		own, err := t.sys.open(ctx, t.addr()) // a process has connections of its own
		if err != nil {
			return err
		}
		stop, err := own.work(ctx, 10, count.handle)
		if err != nil {
			return errors.Join(err, own.close())
		}
		defer stopping.Go(func() { _, _ = stop(), own.close() }) // side by side: some take a second
	}
	return t.feed(ctx, s, count, n)
}

// feed enqueues n tasks at idleRate, each half a second ahead, and reports what
// Redis uses once the start is over.
func (t *trial) feed(ctx context.Context, s session, count *tally, n int) (err error) {
	before := time.Duration(0)
	start := time.Now()
	var from time.Time
	for i := range n {
		due := start.Add(time.Duration(i) * time.Second / idleRate)
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		if from.IsZero() && time.Since(start) >= idleSettle {
			if before, err = t.cpu(ctx); err != nil {
				return err
			}
			from = time.Now()
		}
		if err := s.enqueue(ctx, task{id: taskID('t', i), payload: payload, due: time.Now().Add(time.Second / 2)}); err != nil {
			return err
		}
	}
	after, err := t.cpu(ctx)
	if err != nil {
		return err
	}
	t.record("100 workers, 10 tasks/s: Redis", "% of a CPU", (after-before).Seconds()/time.Since(from).Seconds()*100)
	return count.wait(ctx, 30*time.Second)
}

// pause sleeps unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
