package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// The settlers end after the backlog: what its sweep gave back later would wait
// for its lease to run out.
func TestBacklogClosesAfterItsSweep(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	closed := worker.SweepAndClose(release)
	select {
	case <-closed:
		t.Error("closed while a flight was being given back")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-closed
}

// Stopping takes as long as it may, and no longer, though nothing answers.
func TestDrainIsBoundedWhileTheSourceIsAway(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context) error{
		"it refuses": away,
		"it hangs":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.addMany(5)
				logger, logs := observe()
				w := launch(t, work(3*time.Second), worker.Config{Logger: logger}, f)
				pass(time.Second)
				f.meddle(func(ctx context.Context, _ string) error { return fail(ctx) })
				pass(10 * time.Second)
				began := time.Now()
				w.stop()
				within(t, "Run returned after", time.Since(began), 0, 5*time.Second)
				if n := logs.FilterMessage("source does not answer, trying on").Len(); n != 1 {
					t.Errorf("%d lines about one outage: %v", n, logs.All())
				}
			})
		})
	}
}

// That calls are given up at the end is no sign of an outage.
func TestStoppingIsNoOutage(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		logger, logs := observe()
		w := launch(t, done, worker.Config{Logger: logger, CancelTimeout: time.Second}, f)
		pass(time.Second)
		f.meddle(on("pop", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		f.add("a", 0)
		pass(time.Second)
		w.stop()
		if logs.Len() != 0 {
			t.Errorf("logged %v", logs.All())
		}
	})
}

// 200 stops at any moment of work under load: each returns in time, leaves no
// goroutine behind (or its bubble would not end) and no lease.
func Test200StopsUnderLoad(t *testing.T) {
	t.Parallel()
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(i), 42))
			f := newFake("q")
			f.trip = time.Duration(rng.IntN(5)) * time.Millisecond
			for n := range 150 {
				f.add(fmt.Sprint(n), time.Duration(rng.IntN(50))*time.Millisecond)
			}
			w := launch(t, handler(func(context.Context, *duly.Delivery) error {
				time.Sleep(rand.N(5 * time.Millisecond))
				return nil
			}), worker.Config{Concurrency: 1 + rng.IntN(8)}, f)
			time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
			began := time.Now()
			w.stop()
			within(t, "Run returned after", time.Since(began), 0, 5*time.Millisecond+4*f.trip)
			if n := f.leased(); n != 0 {
				t.Errorf("stop %d: %d tasks are still leased", i, n)
			}
			if s := w.Stats(); int(s.Acked) != 150-f.left() || s.Lost+s.Stuck != 0 || s.Running != 0 {
				t.Errorf("stop %d: counted %+v, %d tasks left", i, s, f.left())
			}
		})
	}
}

// The same through the real client, with subscriptions to end as well.
func TestStopsOfAQueueUnderLoad(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		synctest.Test(t, func(t *testing.T) {
			q := openQueue(t, "orders")
			for n := range 20 {
				_, err := q.Enqueue(t.Context(), duly.Task{Kind: "k"}, queue.In(time.Duration(n)*time.Millisecond))
				must(t, err)
			}
			w := launch(t, work(3*time.Millisecond), worker.Config{Concurrency: 3}, q)
			time.Sleep(time.Duration(i) * 2500 * time.Microsecond)
			w.stop()
			stats, err := q.Stats(t.Context())
			must(t, err)
			if stats.Leased != 0 || stats.Due != 20-int(w.Stats().Acked) {
				t.Errorf("stop %d: queue %+v, worker %+v", i, stats, w.Stats())
			}
		})
	}
}
