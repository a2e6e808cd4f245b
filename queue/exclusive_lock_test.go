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

// acquire takes a name as the application does.
func (r *rig) acquire(tb testing.TB, name string, ttl time.Duration) *lock.Lease {
	tb.Helper()
	lease, err := r.q.Locker().TryAcquire(tb.Context(), name, ttl)
	must(tb, err)
	return lease
}

func TestTheApplicationExcludesTasksByTheirLockKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		hints, flush := listened(t, r)
		lease := r.acquire(t, "order:42", time.Hour)
		r.keyed(t, "order:42", "a", "b")
		ds, wait, err := r.q.Pop(t.Context(), 9, time.Hour)
		must(t, err)
		equal(t, "popped", ids(ds), []string{})
		if wait < 59*time.Minute {
			t.Fatalf("asked to come again in %v", wait)
		}
		flush()
		must(t, lease.Release(t.Context()))
		equal(t, "hint", <-hints, time.Duration(0))
		a := r.popOne(t, "a")
		if a.Fence <= lease.Fence() {
			t.Errorf("fence %d after %d", a.Fence, lease.Fence())
		}

		_, err = r.q.Locker().TryAcquire(t.Context(), "order:42", time.Hour)
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Owner != "task a" || held.RetryAfter < 59*time.Minute {
			t.Fatalf("got %v, want it held by task a for an hour", err)
		}
		r.settle(t, duly.Acked, a)
		r.settle(t, duly.Acked, r.popOne(t, "b"))
		must(t, r.acquire(t, "order:42", time.Hour).Release(t.Context()))
	})
}

func TestATaskRunsWhenTheLockOfAHolderThatDiedHasExpired(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.acquire(t, "key", time.Minute)
	c.keyed(t, "key", "a")
	ds, wait, err := c.q.Pop(t.Context(), 9, time.Hour)
	must(t, err)
	equal(t, "popped", ids(ds), []string{})
	equal(t, "wait", wait, time.Minute)
	c.step(wait)
	c.popOne(t, "a")
}

func TestWhoWaitsInTheApplicationGoesBeforeParkedTasks(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		a := r.popOne(t, "a")
		equal(t, "popped", ids(r.pop(t, 9)), []string{}) // b is parked before the application comes
		got := make(chan *lock.Lease, 1)
		go func() {
			lease, err := r.q.Locker().Acquire(t.Context(), "key", time.Hour)
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		for { // until it stands in line
			info, err := r.q.Locker().Inspect(t.Context(), "key")
			must(t, err)
			if info.Waiters == 1 {
				break
			}
		}
		r.settle(t, duly.Acked, a)
		lease := <-got
		if t.Failed() {
			return
		}
		equal(t, "beside the application", ids(r.pop(t, 9)), []string{})
		if lease.Fence() <= a.Fence {
			t.Errorf("fence %d after %d", lease.Fence(), a.Fence)
		}
		must(t, lease.Release(t.Context()))
		b := r.popOne(t, "b")
		if b.Fence <= lease.Fence() {
			t.Errorf("fence %d after %d", b.Fence, lease.Fence())
		}
	})
}

func TestAnExtensionIsRefusedWhoseLockKeyWasTakenByForce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		r.enqueue(t, "c")
		ds := r.pop(t, 9)
		equal(t, "popped", ids(ds), []string{"a", "c"})
		_, err := r.q.Locker().ForceRelease(t.Context(), "key")
		must(t, err)
		lease := r.acquire(t, "key", time.Hour)
		lost, _, err := r.q.Extend(t.Context(), ds, time.Hour)
		must(t, err)
		equal(t, "lost", ids(lost), []string{"a"})
		r.settle(t, duly.Acked, ds...) // which does not free what is another's
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		equal(t, "beside the application", ids(r.pop(t, 9)), []string{})
		must(t, lease.Release(t.Context()))
		r.popOne(t, "b")
	})
}

// A key of another type cannot be anybody's lock: its tasks wait, and no others.
func TestALockKeyThatIsNoLockBlocksItsOwnTasksAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		must(t, r.LPush(t.Context(), r.key("lock:key"), "x").Err())
		r.keyed(t, "key", "a")
		r.enqueue(t, "b")
		r.popOne(t, "b")
		r.wantState(t, queue.Parked, "a")
	})
}

func TestAHandlerOfTheApplicationAndTasksTakeTurnsUnderLoad(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	const n = 200
	running := make(chan struct{}, 1)
	enter := func(what string) {
		select {
		case running <- struct{}{}:
		default:
			t.Errorf("%s runs beside another", what)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range n {
			if err := r.q.Locker().Do(ctx, "key", time.Minute, func(context.Context, *lock.Lease) error {
				enter("the application")
				<-running
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}()
	tasks := many(n)
	for i := range tasks {
		tasks[i].LockKey = "key"
	}
	_, err := r.q.EnqueueMany(ctx, tasks)
	must(t, err)
	for left := n; left > 0 && ctx.Err() == nil; {
		for _, d := range r.pop(t, 10) {
			enter(d.ID)
			<-running
			r.settle(t, duly.Acked, d)
			left--
		}
	}
	<-done
	must(t, ctx.Err())
}
