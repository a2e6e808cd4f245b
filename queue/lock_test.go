package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
)

func TestNoPopSucceedsWhileAJobHoldsTheQueuesLockButItsOwn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		other, _ := r.queue(t, queue.Config{})
		r.enqueue(t, "a")
		r.enqueue(t, "b")
		failed := errors.New("test: the job failed")
		err := r.q.Lock(t.Context(), time.Minute, func(ctx context.Context) error {
			for _, q := range []*queue.Queue{r.q, other} {
				deliveries, wait, err := q.Pop(t.Context(), 2, time.Hour)
				must(t, err)
				if len(deliveries) != 0 || wait <= 0 || wait > time.Minute {
					t.Errorf("popped %v past the lock, wait %v", ids(deliveries), wait)
				}
			}
			equal(t, "locked", r.stats(t).Locked, true)
			r.enqueue(t, "c") // only pops are kept out
			deliveries, _, err := r.q.Pop(ctx, 1, time.Hour)
			must(t, err)
			equal(t, "popped under the lock", ids(deliveries), []string{"a"})
			r.settle(t, duly.Released, deliveries...)
			return failed
		})
		wants(t, err, failed)
		equal(t, "locked", r.stats(t).Locked, false)
		equal(t, "popped after", ids(popFrom(t, other, 5)), []string{"a", "b", "c"})
	})
}

func TestAContextOfALockThatEndedDoesNotPassTheNextOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		other, _ := r.queue(t, queue.Config{})
		r.enqueue(t, "a")
		var old context.Context
		must(t, r.q.Lock(t.Context(), time.Minute, func(ctx context.Context) error {
			old = context.WithoutCancel(ctx)
			return nil
		}))
		must(t, other.Lock(t.Context(), time.Minute, func(context.Context) error {
			deliveries, _, err := r.q.Pop(old, 1, time.Hour)
			equal(t, "popped", ids(deliveries), []string{})
			return err
		}))
	})
}

func TestALockWithoutTTLIsAdoptedAndThenWaitedFor(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "a")
		must(t, r.Set(t.Context(), r.key("lock"), "made by a client that crashed", 0).Err())
		deliveries, wait, err := r.q.Pop(t.Context(), 1, time.Hour)
		must(t, err)
		if len(deliveries) != 0 || wait <= 0 || wait > 30*time.Second {
			t.Fatalf("popped %v past the lock, wait %v", ids(deliveries), wait)
		}
		ttl, err := r.PTTL(t.Context(), r.key("lock")).Result()
		must(t, err)
		if ttl <= 0 || ttl > 30*time.Second {
			t.Fatalf("the lock lives for %v", ttl)
		}
		must(t, r.Del(t.Context(), r.key("lock")).Err())
		r.popOne(t, "a")
	})
}

func TestTheLockersNamesAreNotTheQueuesOwnLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "a")
		var fence uint64
		for _, name := range []string{"lock", "queue", "order:42"} {
			must(t, r.q.Locker().Do(t.Context(), name, time.Minute, func(_ context.Context, l *lock.Lease) error {
				equal(t, name+" locks the queue", r.stats(t).Locked, false)
				d := r.popOne(t, "a")
				if d.Fence <= l.Fence() || l.Fence() <= fence {
					t.Errorf("fences %d, %d, %d do not rise", fence, l.Fence(), d.Fence)
				}
				fence = d.Fence
				r.settle(t, duly.Released, d)
				return nil
			}))
		}
	})
}
