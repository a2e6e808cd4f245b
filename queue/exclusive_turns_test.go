package queue_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// hundred parks n tasks of each of some keys behind one that is leased, and returns
// those leased.
func (r *rig) hundred(t *testing.T, keys, each int) []*duly.Delivery {
	t.Helper()
	var tasks []duly.Task
	for j := range each + 1 {
		for i := range keys {
			x := task(fmt.Sprintf("%02d %03d", j, i))
			x.LockKey = fmt.Sprintf("key %03d", i)
			tasks = append(tasks, x)
		}
	}
	_, err := r.q.EnqueueMany(t.Context(), tasks)
	must(t, err)
	var leased []*duly.Delivery
	for r.stats(t).Parked < keys*each {
		leased = append(leased, r.pop(t, 500)...)
	}
	equal(t, "leased", len(leased), keys)
	return leased
}

// Nor do newer tasks of the key go before the parked one in the meantime.
func TestNewerTasksDoNotOvertakeTheParkedOne(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.keyed(t, "key", "a", "b")
	a := c.popOne(t, "a")
	equal(t, "popped", ids(c.pop(t, 9)), []string{})
	c.deadWaiter(t, "key")
	c.settle(t, duly.Acked, a)
	c.step(1001 * time.Millisecond)
	c.keyed(t, "key", "later")
	ds := c.pop(t, 9)
	equal(t, "popped", ids(ds), []string{"b"})
}

// A hundred keys are looked at a pop, those that were let go in the order of their
// names: where a hundred are let go between two pops, the names behind never have a
// turn before those in front have run out of tasks.
func TestKeysWithLateNamesDoNotStarve(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const keys, each = 150, 8
		r.settle(t, duly.Acked, r.hundred(t, keys, each)...)
		left := make(map[int]int) // round -> tasks of it that have not run
		for j := 1; j <= each; j++ {
			left[j] = keys
		}
		for pops := 0; pops < 10*each; pops++ {
			ds := r.pop(t, 100)
			for _, d := range ds {
				round, _ := strconv.Atoi(d.ID[:2])
				left[round]--
				for earlier := 1; earlier < round-2; earlier++ {
					if left[earlier] > 0 {
						t.Fatalf("pop %d: %q runs, the %dth of its key, while %d keys still wait for their %dth; those were due earlier and their keys are free",
							pops, d.ID, round, left[earlier], earlier)
					}
				}
			}
			r.settle(t, duly.Acked, ds...)
		}
	})
}

// With more than a hundred keys let go at once, a pop gives a key that it has not
// looked at to a task that came later than the parked one.
func TestAFreeKeyGoesToItsEarliestTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		leased := r.hundred(t, 101, 1)
		r.keyed(t, "key 100", "newcomer")
		r.settle(t, duly.Acked, leased...)
		for _, d := range r.pop(t, 500) {
			if d.ID == "newcomer" {
				t.Fatalf("the newcomer runs, and %q, due earlier, is %s", "01 100", r.get(t, "01 100").State)
			}
		}
	})
}

// A dead worker's tasks: more than a hundred leases end at once. Their locks are gone
// with them, so what is parked is run before the task that crashed, which is due
// earlier.
func TestACrashedTaskGoesBeforeTheParkedOnes(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	ctx := t.Context()
	const n = 101
	for j := range 2 {
		for i := range n {
			x := task(fmt.Sprintf("%02d %03d", j, i))
			x.LockKey = fmt.Sprintf("key %03d", i)
			_, err := c.q.Enqueue(ctx, x, queue.At(c.time.Add(time.Duration(1000*j+n-i)*time.Microsecond)))
			must(t, err)
		}
	}
	c.step(time.Second)
	equal(t, "leased", len(c.pop(t, 500)), n)
	equal(t, "parked", c.stats(t).Parked, n)
	c.step(time.Hour + 2*time.Millisecond)
	for _, d := range c.pop(t, 500) {
		if strings.HasPrefix(d.ID, "01 ") {
			t.Fatalf("%q runs before %q, which is due earlier and %s", d.ID, "00"+d.ID[2:], c.get(t, "00"+d.ID[2:]).State)
		}
	}
}

// A key is looked at again in a second although the task whose turn it is has not been
// popped: each look brings one more of those parked for it into the due set.
func TestOneTaskOfAFreeKeyHasItsTurn(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	var plain []*duly.Delivery
	for i := range 9 {
		c.enqueue(t, fmt.Sprint("plain ", i))
	}
	plain = c.pop(t, 9)
	equal(t, "leased", len(plain), 9)
	c.step(time.Millisecond)
	lease := c.acquire(t, "key", time.Hour)
	c.keyed(t, "key", "a", "b", "c", "d", "e")
	equal(t, "popped", ids(c.pop(t, 9)), []string{})
	c.settle(t, duly.Released, plain...)
	must(t, lease.Release(t.Context()))
	for range 4 { // a slow worker
		equal(t, "popped", len(c.pop(t, 1)), 1)
		c.step(1100 * time.Millisecond)
	}
	c.wantState(t, queue.Due, "a")
	c.wantState(t, queue.Parked, "b", "c", "d", "e")
}

func TestForgedTurnsDoNotStop(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.keyed(t, "key", "a", "b", "c")
	a := c.popOne(t, "a")
	equal(t, "popped", ids(c.pop(t, 9)), []string{})
	must(t, c.HDel(t.Context(), c.key("task"), "b").Err()) // its record is lost
	c.settle(t, duly.Acked, a)
	ds, wait, err := c.q.Pop(t.Context(), 9, time.Hour)
	must(t, err)
	equal(t, "popped", ids(ds), []string{})
	t.Logf("wait %v", wait)
	c.step(wait)
	c.popOne(t, "c")
}

// Tasks on their last chance wait for a trial. Their key stays marked as let go, so
// that pop after pop asks to come again at once, and each takes one more out of the
// parked.
func TestAPopThatCanDoNothingDoesNotAskToComeAtOnce(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.enqueue(t, "x")
	must(t, c.HSet(t.Context(), c.key("crash"), "x", "2").Err())
	c.popOne(t, "x") // on trial
	ids5 := []string{"a", "b", "c", "d", "e"}
	c.keyed(t, "key", ids5...)
	a := c.popOne(t, "a")
	for _, id := range ids5 {
		must(t, c.HSet(t.Context(), c.key("crash"), id, "2").Err())
	}
	equal(t, "popped", ids(c.pop(t, 9)), []string{})
	c.settle(t, duly.Released, a)
	zero := 0
	for range 5 {
		ds, wait, err := c.q.Pop(t.Context(), 9, time.Hour)
		must(t, err)
		equal(t, "popped", ids(ds), []string{})
		if wait == 0 {
			zero++
		}
	}
	if zero > 1 {
		t.Errorf("%d pops brought nothing and asked to come again at once; %d of 4 are still parked", zero, c.stats(t).Parked)
	}
}

// heard counts what is published on the queue's wake channel while f runs.
func (r *rig) heard(t *testing.T, f func()) int {
	t.Helper()
	ctx := t.Context()
	sub := r.Subscribe(ctx, r.key("wake"))
	defer func() { _ = sub.Close() }()
	_, err := sub.Receive(ctx)
	must(t, err)
	f()
	must(t, r.Publish(ctx, r.key("wake"), "end").Err())
	for n := 0; ; {
		got, err := sub.Receive(ctx)
		must(t, err)
		if m, ok := got.(*redis.Message); ok {
			if m.Payload == "end" {
				return n
			}
			n++
		}
	}
}

// Each pop that gives a key to its next task wakes all pollers, itself included.
func TestTakingATurnHintsNobody(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b", "c", "d")
		d := r.popOne(t, "a")
		for _, next := range []string{"b", "c"} {
			r.settle(t, duly.Acked, d)
			if n := r.heard(t, func() { d = r.popOne(t, next) }); n != 0 {
				t.Errorf("the pop of %q published %d hints; there is nothing to pop", next, n)
			}
		}
	})
}

func TestABatchThatSettlesHintsOnce(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	leased := r.hundred(t, 500, 1)
	if n := r.heard(t, func() { r.settle(t, duly.Acked, leased...) }); n > 10 {
		t.Errorf("one settlement of 500 published %d hints, each to all workers, in one script", n)
	}
}

// The last task of a key ends, nobody is parked for it: there is nothing to hint.
func TestTheLastTaskOfAKeyHintsNobody(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		a := r.popOne(t, "a")
		equal(t, "popped", ids(r.pop(t, 9)), []string{})
		r.settle(t, duly.Acked, a)
		b := r.popOne(t, "b")
		if n := r.heard(t, func() { r.settle(t, duly.Acked, b) }); n != 0 {
			t.Errorf("%d hints, and the queue is empty", n)
		}
	})
}
