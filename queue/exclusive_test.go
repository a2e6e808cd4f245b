package queue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// keyed enqueues tasks of one lock key that are due in this order.
func (r *rig) keyed(tb testing.TB, key string, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		task := task(id)
		task.LockKey = key
		_, err := r.q.Enqueue(tb.Context(), task)
		must(tb, err)
	}
}

func TestTasksOfOneLockKeyRunOneAtATimeInDueOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		other, _ := r.queue(t, queue.Config{})
		r.keyed(t, "key", "c", "a", "b")
		r.keyed(t, "other key", "d")
		r.enqueue(t, "e")
		first := r.pop(t, 9)
		equal(t, "popped", ids(first), []string{"c", "d", "e"})
		equal(t, "popped by another", ids(popFrom(t, other, 9)), []string{})
		r.wantState(t, queue.Parked, "a", "b")
		s := r.stats(t)
		equal(t, "due, ready, parked", []int{s.Due, s.Ready, s.Parked}, []int{2, 0, 2})
		fence := first[0].Fence
		r.settle(t, duly.Acked, first[0])
		for _, id := range []string{"a", "b"} {
			d := popFrom(t, other, 9)
			equal(t, "next", ids(d), []string{id})
			if d[0].Fence <= fence {
				t.Errorf("fence %d after %d", d[0].Fence, fence)
			}
			fence = d[0].Fence
			r.settle(t, duly.Acked, d...)
		}
	})
}

func TestABlockedTaskHoldsNoSlotBurnsNoAttemptAndIsNotPolled(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		holder := r.popOne(t, "a")
		for range 3 {
			ds, wait, err := r.q.Pop(t.Context(), 1, time.Hour)
			must(t, err)
			equal(t, "popped", ids(ds), []string{})
			if wait < 59*time.Minute {
				t.Fatalf("asked to come again in %v", wait)
			}
		}
		r.enqueue(t, "c")
		r.settle(t, duly.Acked, r.popOne(t, "c"), holder)
		d := r.popOne(t, "b")
		equal(t, "attempt, crashes", []int{d.Attempt, d.Crashes}, []int{1, 0})
	})
}

func TestSettlingHandsALockKeyOverAtOnceAndHintsIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		hints, flush := listened(t, r)
		for _, action := range []duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried} {
			first, second := "1 "+string(action), "2 "+string(action)
			r.keyed(t, string(action), first, second)
			d := r.pop(t, 9)
			equal(t, "popped", ids(d), []string{first})
			flush()
			lost, err := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: d[0], Action: action, In: time.Hour}})
			must(t, err)
			equal(t, "lost", ids(lost), []string{})
			for <-hints != 0 { // of the task that comes back
			}
			r.settle(t, duly.Acked, r.popOne(t, second))
		}
	})
}

// listened returns the hints of the rig's queue until the test ends. What is on its
// way has come when flush returns.
func listened(t *testing.T, r *rig) (hints <-chan time.Duration, flush func()) {
	t.Helper()
	all := make(chan time.Duration, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.q.Watch(ctx, func(in time.Duration) { all <- in }, func(string, uint64) {})
	}()
	t.Cleanup(func() { cancel(); <-done })
	<-all // of the connection
	return all, func() {
		must(t, r.Publish(t.Context(), r.key("wake"), "7").Err())
		for in := range all {
			if in == 7*time.Microsecond {
				return
			}
		}
	}
}

func TestATaskThatComesBackEarlierGoesBeforeTheParked(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		r.settle(t, duly.Released, r.popOne(t, "a"))
		again := r.popOne(t, "a")
		r.settle(t, duly.Retried, again) // due now, which is later than b
		b := r.popOne(t, "b")
		r.settle(t, duly.Acked, b)
		r.popOne(t, "a")
	})
}

func TestACrashedHoldersLockKeyIsHandedOverWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.keyed(t, "key", "a", "b")
	a := c.popOne(t, "a")
	c.step(59 * time.Minute)
	_, wait, err := c.q.Pop(t.Context(), 9, time.Hour)
	must(t, err)
	equal(t, "wait", wait, time.Minute)
	c.step(wait)
	again := c.popOne(t, "a") // it is the earlier one
	equal(t, "crashes", again.Crashes, 1)
	lost, err := c.q.Settle(t.Context(), []duly.Settlement{{Delivery: a, Action: duly.Acked}})
	must(t, err)
	equal(t, "lost", ids(lost), []string{"a"})
	equal(t, "beside the new holder", ids(c.pop(t, 9)), []string{})
	c.settle(t, duly.Acked, again)
	c.popOne(t, "b")
}

func TestAnExtendedLeaseKeepsItsLockKey(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.keyed(t, "key", "a", "b")
	a := c.popOne(t, "a")
	for range 3 {
		c.step(40 * time.Minute)
		lost, _, err := c.q.Extend(t.Context(), []*duly.Delivery{a}, time.Hour)
		must(t, err)
		equal(t, "lost", ids(lost), []string{})
		equal(t, "beside the holder", ids(c.pop(t, 9)), []string{})
	}
	c.settle(t, duly.Acked, a)
	c.popOne(t, "b")
}

func TestAnExtensionTakesALockKeyAgainThatWasEvicted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		a := r.popOne(t, "a")
		must(t, r.Del(t.Context(), r.key("lock:key")).Err())
		lost, _, err := r.q.Extend(t.Context(), []*duly.Delivery{a}, time.Hour)
		must(t, err)
		equal(t, "lost", ids(lost), []string{})
		equal(t, "beside the holder", ids(r.pop(t, 9)), []string{})
		r.settle(t, duly.Acked, a)
		r.popOne(t, "b")
	})
}

func TestAParkedTaskIsCancelledRemovedMovedAndReplacedAsADueOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.keyed(t, "key", "a", "cancelled", "removed", "moved", "replaced", "kept", "last")
		a := r.popOne(t, "a")
		state, err := r.q.Cancel(ctx, "cancelled")
		must(t, err)
		equal(t, "cancelled", state, queue.Due)
		due := r.get(t, "removed").At
		for i, at := range []time.Time{due.Add(time.Microsecond), due} {
			removed, err := r.q.Remove(ctx, "removed", at)
			must(t, err)
			equal(t, "removed", removed, i == 1)
		}
		state, err = r.q.Reschedule(ctx, "moved", queue.In(time.Hour))
		must(t, err)
		equal(t, "moved", []any{state, r.get(t, "moved").State}, []any{queue.Due, queue.Due})
		got := r.enqueue(t, "replaced", queue.OnConflict(queue.Replace)) // by one without a key
		equal(t, "replaced", []any{got.Outcome, got.State}, []any{queue.Replaced, queue.Due})
		got = r.enqueue(t, "kept")
		equal(t, "kept", []any{got.Outcome, got.State, got.Due}, []any{queue.Kept, queue.Due, r.get(t, "kept").At})
		r.popOne(t, "replaced")

		parked, err := r.q.List(ctx, queue.Parked, 0, 9)
		must(t, err)
		equal(t, "parked", len(parked), 2)
		equal(t, "first parked", []any{parked[0].ID, parked[0].State, parked[0].LockKey}, []any{"kept", queue.Parked, "key"})
		r.settle(t, duly.Acked, a)
		r.settle(t, duly.Acked, r.popOne(t, "kept"))
		r.popOne(t, "last")
	})
}

func TestATaskThatIsGoneBeforeItsTurnLetsTheNextHaveIt(t *testing.T) {
	t.Parallel()
	for what, leave := range map[string]func(t *testing.T, r *rig){
		"cancelled": func(t *testing.T, r *rig) { _, err := r.q.Cancel(t.Context(), "b"); must(t, err) },
		"moved": func(t *testing.T, r *rig) {
			_, err := r.q.Reschedule(t.Context(), "b", queue.In(time.Hour))
			must(t, err)
		},
		"replaced": func(t *testing.T, r *rig) {
			r.enqueue(t, "b", queue.OnConflict(queue.Replace), queue.In(time.Hour))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				r.enqueue(t, "earlier")
				r.keyed(t, "key", "a", "b", "c")
				ds := r.pop(t, 9)
				equal(t, "popped", ids(ds), []string{"earlier", "a"})
				r.settle(t, duly.Released, ds[0])
				r.settle(t, duly.Acked, ds[1])
				r.settle(t, duly.Released, r.pop(t, 1)...) // b's turn has come, and it is not popped
				r.wantState(t, queue.Due, "b")
				r.wantState(t, queue.Parked, "c")
				leave(t, r)
				equal(t, "popped", ids(r.pop(t, 9)), []string{"earlier", "c"})
			})
		})
	}
}

func TestALostPopOfTasksWithLockKeysIsRepeated(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key 1", "a", "b")
		r.keyed(t, "key 2", "c", "d")
		r.link.lose()
		_, _, err := r.q.Pop(t.Context(), 2, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		other, _ := r.queue(t, queue.Config{})
		equal(t, "popped by another", ids(popFrom(t, other, 9)), []string{})
		a := r.pop(t, 1) // only one of them: the other is given back, with its key
		equal(t, "popped again", ids(a), []string{"a"})
		c := popFrom(t, other, 9)
		equal(t, "popped by another", ids(c), []string{"c"})
		r.settle(t, duly.Acked, append(a, c...)...)
		equal(t, "popped at last", ids(r.pop(t, 9)), []string{"b", "d"})
	})
}

func TestAnIDEnqueuedAgainDuringItsRunNeverOverlapsItself(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, key := range []string{"", "key"} {
			id := "x" + key
			r.keyed(t, key, id)
			d := r.popOne(t, id)
			for _, conflict := range []queue.Conflict{queue.Keep, queue.Earliest, queue.Replace} {
				r.enqueue(t, id, queue.OnConflict(conflict))
				equal(t, "beside itself", ids(r.pop(t, 9)), []string{})
			}
			r.settle(t, duly.Acked, d)
			r.settle(t, duly.Acked, r.popOne(t, id))
		}
	})
}

// It takes 50 pops to park the tasks of the hot key.
func TestAHotLockKeyDoesNotSlowTheOthers(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	const n = 10_000
	tasks := many(n)
	for i := range tasks {
		tasks[i].LockKey = "hot"
	}
	_, err := r.q.EnqueueMany(t.Context(), tasks)
	must(t, err)
	for i := range 100 {
		r.enqueue(t, fmt.Sprintf("other %02d", i))
	}
	var hot []*duly.Delivery
	others := 0
	for pops := 1; others < 100; pops++ {
		ds := r.pop(t, 10)
		for _, d := range ds {
			if d.LockKey == "hot" {
				hot = append(hot, d)
			} else {
				others++
			}
		}
		if pops > 50+10+1 {
			t.Fatalf("%d of 100 other tasks popped in %d pops", others, pops)
		}
	}
	equal(t, "of the hot key", ids(hot), []string{"00000"})
	for i := range 50 {
		r.settle(t, duly.Acked, hot...)
		hot = r.pop(t, 10)
		equal(t, "of the hot key", ids(hot), []string{fmt.Sprintf("%05d", i+1)})
	}
}

func TestLockKeysAreHandedOverAtTheMemoryLimit(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	r.keyed(t, "key", "a", "b", "c")
	r.fill(t)
	for _, id := range []string{"a", "b", "c"} {
		d := r.popOne(t, id)
		lost, _, err := r.q.Extend(t.Context(), []*duly.Delivery{d}, 2*time.Hour)
		must(t, err)
		equal(t, "lost", ids(lost), []string{})
		equal(t, "beside it", ids(r.pop(t, 9)), []string{})
		r.settle(t, duly.Acked, d)
	}
}
