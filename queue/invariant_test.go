package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// Invariant 1.
func TestEachAcknowledgedTaskIsDeliveredUntilItEnds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const n = 200
		_, err := r.q.EnqueueMany(t.Context(), many(n))
		must(t, err)
		random := rand.New(rand.NewPCG(1, 2)) // repeatable on purpose
		left := make(map[string]bool)
		for _, task := range many(n) {
			left[task.ID] = true
		}
		for len(left) > 0 {
			if random.IntN(5) == 0 {
				r.link.lose()
			}
			deliveries, _, err := r.q.Pop(t.Context(), 1+random.IntN(20), time.Hour)
			if err != nil {
				wants(t, err, queue.ErrUnknownOutcome)
				continue
			}
			if len(deliveries) == 0 {
				t.Fatalf("%d tasks were acknowledged and do not come: %+v", len(left), r.stats(t))
			}
			for _, d := range deliveries {
				if !left[d.ID] {
					t.Fatalf("%q is delivered after its end", d.ID)
				}
				switch end := random.IntN(4); {
				case end == 0 && d.Crashes == 0: // a second crash would delay it
					r.lapse(t, d)
				case end == 1:
					r.settle(t, duly.Retried, d)
				case end == 2:
					r.settle(t, duly.Released, d)
				default:
					r.settle(t, duly.Acked, d)
					delete(left, d.ID)
				}
			}
		}
		s := r.stats(t)
		equal(t, "left", []int{s.Due, s.Leased, s.Dead}, []int{0, 0, 0})
	})
}

// Invariant 2.
func TestNoTaskIsPoppedBeforeItIsDueByTheServersClock(t *testing.T) {
	t.Parallel()
	c := newClock(t) // years behind the test's own clock
	c.enqueue(t, "in", queue.In(time.Hour))
	c.enqueue(t, "at", queue.At(c.time.Add(time.Hour+time.Microsecond)))
	equal(t, "due", c.get(t, "in").At, c.time.Add(time.Hour))
	c.step(time.Hour - time.Microsecond)
	equal(t, "popped 1 µs early", ids(c.pop(t, 2)), []string{})
	_, wait, err := c.q.Pop(t.Context(), 2, time.Hour)
	must(t, err)
	equal(t, "wait", wait, time.Microsecond)
	c.step(time.Microsecond)
	in := c.popOne(t, "in")
	equal(t, "popped", []any{in.Due, in.Popped}, []any{c.time, c.time})
	c.step(time.Microsecond)
	at := c.popOne(t, "at")

	lost, err := c.q.Settle(t.Context(), []duly.Settlement{
		{Delivery: in, Action: duly.Retried, In: time.Minute},
		{Delivery: at, Action: duly.Released, In: time.Minute},
	})
	must(t, err)
	equal(t, "lost", ids(lost), []string{})
	c.step(time.Minute - time.Microsecond)
	equal(t, "popped 1 µs early", ids(c.pop(t, 2)), []string{})
	c.step(time.Microsecond)
	equal(t, "popped", ids(c.pop(t, 2)), []string{"at", "in"})
}

func TestATimeBeforeTheServersNowIsNow(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	for i, opt := range []queue.EnqueueOption{
		queue.In(-time.Hour), queue.At(c.time.Add(-time.Microsecond)), queue.At(time.Unix(1, 0)), queue.At(time.Time{}),
	} {
		receipt := c.enqueue(t, fmt.Sprint(i), opt)
		equal(t, "due", receipt.Due, c.time)
	}
	equal(t, "popped", ids(c.pop(t, 9)), []string{"0", "1", "2", "3"})
}

// Invariant 4.
func TestOnlyTheNewestLeaseSettlesOrExtends(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x")
		old := r.popOne(t, "x")
		r.lapse(t, old)
		newest := r.popOne(t, "x")
		forged := *newest
		forged.Fence++
		moved := *newest
		moved.Due = moved.Due.Add(time.Microsecond)
		renamed := *newest
		renamed.ID = "y"
		for what, d := range map[string]*duly.Delivery{
			"an old lease": old, "a fence never given": &forged, "another due time": &moved, "another ID": &renamed,
		} {
			r.unchanged(t, func() {
				for _, action := range []duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried} {
					lost, err := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: action}})
					must(t, err)
					equal(t, fmt.Sprintf("lost to %s by %s", action, what), ids(lost), []string{d.ID})
				}
				lost, _, err := r.q.Extend(t.Context(), []*duly.Delivery{d}, 5*time.Hour)
				must(t, err)
				equal(t, "lost to extend by "+what, ids(lost), []string{d.ID})
			})
		}
		lost, _, err := r.q.Extend(t.Context(), []*duly.Delivery{newest}, time.Hour)
		must(t, err)
		equal(t, "lost by the newest", ids(lost), []string{})
		r.settle(t, duly.Acked, newest)
	})
}

// Invariant 5, and the fence against a clock that is stepped back or a counter
// that is lost.
func TestFencesRiseStrictlyAlsoWhenTheClockStepsBackOrTheCounterIsLost(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.enqueue(t, "x")
	last := uint64(0)
	rises := func(what string) {
		t.Helper()
		d := c.popOne(t, "x")
		if d.Fence <= last {
			t.Fatalf("after %s: fence %d, the last was %d", what, d.Fence, last)
		}
		last = d.Fence
		c.settle(t, duly.Released, d)
	}
	rises("nothing")
	rises("no time at all")
	c.step(time.Second)
	rises("a second")
	c.enqueue(t, "y", queue.In(-time.Hour), queue.OnConflict(queue.Replace))
	_, err := c.q.Cancel(t.Context(), "y")
	must(t, err)
	must(t, c.ZAddXX(t.Context(), c.key("due"), zAt("x", 5)).Err()) // due also in the past
	c.step(-24 * time.Hour)
	rises("a clock stepped back a day")
	rises("a clock stepped back a day, again")
	c.step(25 * time.Hour)
	must(t, c.Del(t.Context(), c.key("fence")).Err())
	rises("a lost counter")
	must(t, c.Set(t.Context(), c.key("fence"), "garbage", 0).Err())
	c.step(time.Microsecond)
	rises("a counter overwritten")
	if fence := c.snapshot(t).fence; fence != fmt.Sprint(last) {
		t.Fatalf("counter %q after fence %d", fence, last)
	}
}

// Invariant 5.
func TestALeaseKeepsOthersOutUntilItEndsAndNoLonger(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	other, _ := c.queue(t, queue.Config{})
	c.enqueue(t, "x")
	d := c.popOne(t, "x")
	c.step(time.Hour - time.Microsecond)
	equal(t, "popped 1 µs before the lease ends", ids(popFrom(t, other, 1)), []string{})
	lost, _, err := c.q.Extend(t.Context(), []*duly.Delivery{d}, time.Minute)
	must(t, err)
	equal(t, "lost", ids(lost), []string{})
	c.step(time.Minute - time.Microsecond)
	equal(t, "popped 1 µs before the extended lease ends", ids(popFrom(t, other, 1)), []string{})
	c.step(time.Microsecond)
	equal(t, "popped at the lease's end", ids(popFrom(t, other, 1)), []string{"x"})
}

// Invariant 6.
func TestATaskThatComesBackAfterACrashKeepsItsPlace(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ds := r.leased(t, "c", "b", "a")
		r.enqueue(t, "d")
		r.lapse(t, ds["b"], ds["a"], ds["c"])
		equal(t, "order", ids(r.pop(t, 9)), []string{"c", "b", "a", "d"})
	})
}

// Invariant 9.
func TestAnEmptyQueueKeepsNoKeysButItsFenceAndCounters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ds := r.leased(t, "crash", "replace", "retry", "bury")
		r.enqueue(t, "replace", queue.OnConflict(queue.Replace))
		r.settle(t, duly.Acked, ds["replace"])
		r.settle(t, duly.Retried, ds["retry"])
		r.settle(t, duly.Buried, ds["bury"])
		r.lapse(t, ds["crash"])
		again := r.pop(t, 9)
		equal(t, "popped again", len(again), 3)
		r.lapse(t, again...)
		r.settle(t, duly.Acked, r.pop(t, 9)...)
		_, err := r.q.Purge(t.Context(), 0)
		must(t, err)
		must(t, r.q.Pause(t.Context()))
		must(t, r.q.Resume(t.Context()))
		must(t, r.q.Lock(t.Context(), time.Minute, func(context.Context) error { return nil }))
		for _, key := range r.keysLike(t, "") {
			ttl, err := r.PTTL(t.Context(), key).Result()
			must(t, err)
			if ttl < 0 && key != r.key("fence") && key != r.key("stat") {
				t.Errorf("%s is left for ever", key)
			}
		}
	})
}
