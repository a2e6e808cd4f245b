package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// A patient is a queue that is not asked while it is known what it would say: a
// day has 17,280 polls of 5 s, each of which costs miniredis half a millisecond.
type patient struct {
	*queue.Queue

	mu            sync.Mutex // guards what follows
	empty         time.Time  // nothing is due before, unless a hint comes
	asked, spared int
	extended      int
}

func (p *patient) Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	p.mu.Lock()
	if wait := time.Until(p.empty); wait > 0 {
		p.spared++
		p.mu.Unlock()
		return nil, wait, nil
	}
	p.asked++
	p.empty = time.Now().Add(time.Nanosecond) // a hint from now on takes it back
	p.mu.Unlock()
	ds, wait, err := p.Queue.Pop(ctx, n, lease)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && len(ds) == 0 && !p.empty.IsZero() {
		p.empty = time.Now().Add(wait)
	}
	return ds, wait, err
}

func (p *patient) Extend(ctx context.Context, ds []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error) {
	p.mu.Lock()
	p.extended += len(ds)
	p.mu.Unlock()
	return p.Queue.Extend(ctx, ds, lease)
}

func (p *patient) Watch(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
	p.Queue.Watch(ctx, func(in time.Duration) {
		p.mu.Lock()
		p.empty = time.Time{}
		p.mu.Unlock()
		hint(in)
	}, cancel)
}

// dayHandlers are those of a day.
func dayHandlers(j *journal) *duly.Mux {
	mux := duly.NewMux()
	mux.HandleFunc("quick", j.note)
	mux.HandleFunc("long", func(ctx context.Context, d *duly.Delivery) error {
		_ = j.note(ctx, d)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Hour):
			return nil
		}
	})
	mux.HandleFunc("fails", func(ctx context.Context, d *duly.Delivery) error {
		if _ = j.note(ctx, d); d.Attempt < 3 {
			return errBoom
		}
		return nil
	})
	mux.HandleFunc("snoozes", func(ctx context.Context, d *duly.Delivery) error {
		if _ = j.note(ctx, d); len(j.all(d.ID)) < 4 {
			return duly.Snooze(20 * time.Minute)
		}
		return nil
	})
	return mux
}

// A day of a queue with its worker, through the real client: tasks due at any
// time of it, some that fail twice, some that snooze, some that take an hour.
// Each runs when it is due to the µs, and as often as it must.
func TestDayOfAWorkerInVirtualTime(t *testing.T) {
	t.Parallel()
	const day, tasks = 24 * time.Hour, 150
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		p, j := &patient{Queue: openQueue(t, "orders")}, new(journal)
		rng := rand.New(rand.NewPCG(1, 2))
		began := time.Now()
		due := make(map[string]time.Time)
		for i := range tasks {
			kind, in := "quick", time.Duration(rng.Int64N(int64(day-3*time.Hour))).Truncate(time.Microsecond)
			switch {
			case i%25 == 0:
				kind = "long"
			case i%10 == 1:
				kind = "fails"
			case i%10 == 2:
				kind = "snoozes"
			}
			id := fmt.Sprint(kind, i)
			_, err := p.Enqueue(t.Context(), duly.Task{ID: id, Kind: kind, Timeout: 2 * time.Hour}, queue.In(in))
			must(t, err)
			due[id] = began.Add(in)
		}
		w := launch(t, dayHandlers(j), worker.Config{Lease: 5 * time.Minute}, p)
		pass(day)

		for id, first := range due {
			runs := j.all(id)
			within(t, id+" began late by", runs[0].at.Sub(first), 0, time.Microsecond)
			want := map[string]int{"quick": 1, "long": 1, "fails": 3, "snoozes": 4}[runs[0].Kind]
			if len(runs) != want {
				t.Errorf("%s ran %d times, want %d", id, len(runs), want)
			}
			for i, e := range runs[1:] {
				if gap := e.at.Sub(runs[i].at); e.Kind == "snoozes" {
					within(t, id+" slept for", gap, 20*time.Minute, 20*time.Minute+time.Microsecond)
				} else {
					within(t, id+" was put off by", gap, 0, 2*time.Second+time.Microsecond)
				}
			}
		}
		stats, err := p.Stats(t.Context())
		must(t, err)
		if stats.Due+stats.Leased+stats.Dead != 0 || stats.Counters["ack"] != tasks || w.Stats().Lost != 0 {
			t.Errorf("queue %+v, worker %+v", stats, w.Stats())
		}
		p.mu.Lock()
		t.Logf("%d tasks, %d runs, %d retries, %d snoozes, %d leases renewed, %d pops and %d more that were spared",
			tasks, len(j.all()), w.Stats().Retried, w.Stats().Released, p.extended, p.asked, p.spared)
		p.mu.Unlock()
	})
	t.Logf("24 h in %v", time.Since(real).Round(10*time.Millisecond))
}
