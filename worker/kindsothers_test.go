package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// crowd enqueues 30 tasks of a kind of which one may run, and which does not end, and
// then one of another kind, and reports whether that has run after 10 s.
func crowd(t *testing.T, limits queue.Limits, key string) (ran bool, stats worker.Stats) {
	t.Helper()
	rdb := redistest.Start(t).Client()
	q, err := queue.New(rdb, "q", queue.Config{})
	must(t, err)
	must(t, q.SetLimits(t.Context(), limits))
	for i := range 30 {
		task := duly.Task{ID: fmt.Sprintf("slow-%02d", i), Kind: "slow"}
		if i > 0 {
			task.LockKey = key
		}
		_, err = q.Enqueue(t.Context(), task)
		must(t, err)
	}
	_, err = q.Enqueue(t.Context(), duly.Task{ID: "other", Kind: "other", LockKey: key})
	must(t, err)
	other, end := make(chan struct{}, 1), make(chan struct{})
	w := launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
		if d.Kind == "other" {
			other <- struct{}{}
			return nil
		}
		<-end
		return nil
	}), worker.Config{Concurrency: 10, KindLimits: map[string]int{"slow": 1}}, q)
	defer close(end)
	select {
	case <-other:
		ran = true
	case <-time.After(10 * time.Second):
	}
	return ran, w.Stats()
}

// Nobody runs a task of the key: those of the kind over its limit must not keep it.
func TestAKindOverItsLimitLeavesLockKeysToOthers(t *testing.T) {
	t.Parallel()
	if ran, stats := crowd(t, queue.Limits{}, "key"); !ran {
		t.Errorf("in 10 s the task of another kind has not begun: %+v", stats)
	}
}

// The same without either, to show that it is they.
func TestAKindOverItsLimitHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	if ran, stats := crowd(t, queue.Limits{}, ""); !ran {
		t.Errorf("in 10 s the task of another kind has not begun: %+v", stats)
	}
}

// A run that waits for a place of its kind is cancelled: it is not to begin, so it can
// end at once, and counts as cancelled.
func TestARunThatWaitsForItsKindIsCancelledAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.addTask(duly.Task{ID: "a", Kind: "k"}, 0)
		w := launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}), worker.Config{KindLimits: map[string]int{"k": 1}, DrainTimeout: -1}, f)
		pass(10 * time.Millisecond)
		f.addTask(duly.Task{ID: "b", Kind: "k"}, 0)
		pass(10 * time.Millisecond)
		f.cancel("b")
		pass(100 * time.Millisecond)
		if f.left() != 1 {
			t.Errorf("100 ms after it was cancelled, b is still leased: %v", f.out())
		}
		pass(3 * time.Second)
		if s := w.Stats(); s.Cancelled != 1 || s.Dropped != 1 || s.Limited != 0 || f.left() != 1 {
			t.Errorf("counted %+v; %d left", s, f.left())
		}
	})
}

// The same if the message comes before the reply to the pop, or never: then the
// extension tells, after a third of the lease.
func TestARunThatWaitsForItsKindIsCancelledThoughItsMessageCameEarlyOrNever(t *testing.T) {
	for name, within := range map[string]time.Duration{"early": 20 * time.Millisecond, "never": 120 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.after = on("pop", func(context.Context) error {
					if name == "early" && f.leased() == 2 {
						f.cancel("b")
					}
					return nil
				})
				f.addTask(duly.Task{ID: "a", Kind: "k"}, 0)
				launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
					<-ctx.Done()
					return ctx.Err()
				}), worker.Config{KindLimits: map[string]int{"k": 1}, Lease: 300 * time.Millisecond, DrainTimeout: -1}, f)
				pass(10 * time.Millisecond)
				f.addTask(duly.Task{ID: "b", Kind: "k"}, 0)
				pass(10 * time.Millisecond)
				if name == "never" {
					f.mute = true
					f.cancel("b")
				}
				pass(within)
				if f.left() != 1 {
					t.Errorf("%v after it was cancelled, b is still leased: %v", within, f.out())
				}
			})
		})
	}
}
