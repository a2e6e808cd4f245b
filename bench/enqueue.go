package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// enqueueAhead is when the tasks of the enqueue suite are due.
const enqueueAhead = 15 * time.Minute

// An enqueueWay is how tasks are handed over.
type enqueueWay struct{ callers, batch int }

func (w enqueueWay) String() string {
	switch {
	case w.batch > 1:
		return "batches of " + number(float64(w.batch))
	case w.callers > 1:
		return fmt.Sprintf("%d callers", w.callers)
	}
	return "1 caller"
}

// The ways that cost Redis least: in batches, or, where there are none, from
// many callers.
var (
	inBatches = enqueueWay{1, 1000}
	singly    = enqueueWay{256, 1}
)

// enqueueSuite measures how fast tasks are taken that are due in 15 minutes, and
// what that costs Redis.
func enqueueSuite(ctx context.Context, r *rig) error {
	for _, way := range []enqueueWay{{1, 1}, {16, 1}, singly, {1, 100}, inBatches} {
		err := r.alternate(ctx, "enqueue", r.rounds, nil, func(ctx context.Context, t *trial) error {
			return t.enqueue(ctx, way)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) enqueue(ctx context.Context, way enqueueWay) (err error) {
	s, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer closing(s, &err)
	if way.batch > 1 && !s.batches() {
		return nil // the table shows no row
	}
	if _, _, err := enqueueFor(ctx, s, way, 50*time.Millisecond, 0); err != nil { // connects, loads scripts
		return err
	}
	warm, err := s.unsettled(ctx)
	if err != nil {
		return err
	}
	e, err := t.enqueueInto(ctx, s, way, warm)
	if err != nil {
		return err
	}
	if err := settled(ctx, s, warm+e.n); err != nil {
		return err
	}
	t.record(way.String(), "tasks/s", e.rate)
	t.recordCPU("enqueue, "+way.String(), e.cpu)
	return nil
}

// An enqueued is how many tasks were enqueued, how fast, and the µs of Redis's CPU
// that each took.
type enqueued struct {
	n         int
	rate, cpu float64
}

// enqueueInto enqueues tasks numbered from first for as long as a measurement takes.
func (t *trial) enqueueInto(ctx context.Context, s session, way enqueueWay, first int) (e enqueued, err error) {
	before, err := t.cpu(ctx)
	if err != nil {
		return e, err
	}
	n, took, err := enqueueFor(ctx, s, way, t.scale.enqueue, first)
	if err != nil {
		return e, err
	}
	after, err := t.cpu(ctx)
	return enqueued{n, float64(n) / took.Seconds(), perTask(after-before, n)}, err
}

// enqueueFor enqueues tasks numbered from first for some time, and returns how
// many and how long the last of them took.
func enqueueFor(ctx context.Context, s session, way enqueueWay, long time.Duration, first int) (int, time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg         sync.WaitGroup
		next, done atomic.Int64
		start      = time.Now()
	)
	next.Store(int64(first))
	for range way.callers {
		wg.Go(func() {
			for ctx.Err() == nil && time.Since(start) < long {
				begin := int(next.Add(int64(way.batch))) - way.batch
				tasks := tasksOf('t', begin, way.batch, start.Add(enqueueAhead))
				var err error
				if way.batch > 1 {
					err = s.enqueueMany(ctx, tasks)
				} else {
					err = s.enqueue(ctx, tasks[0])
				}
				if err != nil {
					cancel(err)
					return
				}
				done.Add(int64(way.batch))
			}
		})
	}
	wg.Wait()
	return int(done.Load()), time.Since(start), context.Cause(ctx)
}
