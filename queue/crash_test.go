package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// Invariant 7.
func TestTasksOfADeadWorkerComeBackWhenTheirLeaseEndsWithoutAFailedAttempt(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	other, _ := c.queue(t, queue.Config{})
	c.enqueue(t, "failed")
	c.settle(t, duly.Retried, c.popOne(t, "failed"))
	c.enqueue(t, "fresh")
	first := c.pop(t, 2) // by a worker that dies
	c.step(time.Hour - time.Microsecond)
	_, wait, err := other.Pop(t.Context(), 2, time.Hour)
	must(t, err)
	equal(t, "wait of the others", wait, time.Microsecond)
	c.step(time.Microsecond)
	for i, d := range popFrom(t, other, 2) {
		want := []any{first[i].ID, first[i].Due, first[i].Attempt, 1}
		equal(t, "delivery after the crash", []any{d.ID, d.Due, d.Attempt, d.Crashes}, want)
	}
}

// Invariant 7.
func TestATaskThatKillsItsWorkerThreeTimesIsBuried(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for _, limit := range []int{0, 1, 5} {
			r := main.another(t, queue.Config{MaxCrashes: limit})
			r.enqueue(t, "x")
			want := limit
			if limit == 0 {
				want = 3
			}
			for crashes := range want {
				d := r.popOne(t, "x")
				equal(t, "crashes, attempt", []int{d.Crashes, d.Attempt}, []int{crashes, 1})
				r.lapse(t, d)
			}
			equal(t, "popped", ids(r.pop(t, 1)), []string{})
			info := r.get(t, "x")
			equal(t, "task", []any{info.State, info.Crashes, string(info.Payload)}, []any{"dead", want, "payload of x"})
			equal(t, "counters", r.stats(t).Counters, map[string]int64{"enqueued": 1, "reclaimed": int64(want), "buried": 1})
		}
	})
}

func TestTasksThatCrashedTogetherGetTheirLastChanceApart(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	for _, id := range []string{"a", "b", "c"} {
		c.enqueue(t, id)
	}
	equal(t, "popped", ids(c.pop(t, 9)), []string{"a", "b", "c"})
	c.step(time.Hour)
	again := c.pop(t, 9)
	equal(t, "popped after one crash", ids(again), []string{"a", "b", "c"})
	c.step(time.Hour)
	for _, id := range []string{"a", "b", "c"} {
		d := c.popOne(t, id)
		equal(t, "crashes", d.Crashes, 2)
		c.step(100 * time.Millisecond)
		equal(t, "popped beside the one on trial", ids(c.pop(t, 9)), []string{})
		c.settle(t, duly.Acked, d)
		c.step(100*time.Millisecond - time.Microsecond)
		equal(t, "popped 1 µs early", ids(c.pop(t, 9)), []string{})
		c.step(time.Microsecond)
	}
}

func TestThereIsNoTrialWhereTheFirstCrashBuries(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		r := main.another(t, queue.Config{MaxCrashes: 1})
		r.lapse(t, r.leased(t, "x")["x"])
		equal(t, "popped", ids(r.pop(t, 9)), []string{})
		for _, id := range []string{"a", "b"} {
			r.enqueue(t, id)
		}
		equal(t, "popped together", ids(r.pop(t, 9)), []string{"a", "b"})
	})
}

func TestATrialEndsWithAThirdOfItsLease(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	for _, id := range []string{"a", "b"} {
		c.enqueue(t, id)
	}
	for range 2 {
		equal(t, "popped", ids(c.pop(t, 9)), []string{"a", "b"})
		c.step(time.Hour)
	}
	_, _, err := c.q.Pop(t.Context(), 9, time.Minute) // a, which hangs
	must(t, err)
	c.step(20*time.Second - time.Microsecond)
	equal(t, "popped 1 µs early", ids(c.pop(t, 9)), []string{})
	c.step(100 * time.Millisecond)
	equal(t, "popped after the trial", ids(c.pop(t, 9)), []string{"b"})
}

func TestATaskThatSettlesInBetweenIsNotBuriedForCrashes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x")
		for range 3 {
			r.lapse(t, r.popOne(t, "x"))
			r.lapse(t, r.popOne(t, "x"))
			d := r.popOne(t, "x")
			equal(t, "crashes", d.Crashes, 2)
			r.settle(t, duly.Retried, d)
		}
		equal(t, "attempt", r.popOne(t, "x").Attempt, 4)
	})
}

func TestReclaimOfMoreLeasesThanOneScriptTakes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const n = 250
		_, err := r.q.EnqueueMany(t.Context(), many(n))
		must(t, err)
		dead := r.pop(t, n)
		r.lapse(t, dead...)
		var got []string
		for pops := 1; len(got) < n; pops++ {
			deliveries, wait, err := r.q.Pop(t.Context(), 30, time.Hour)
			must(t, err)
			if full := pops <= n/100; full != (len(deliveries) == 0) || len(got)+len(deliveries) < n && wait != 0 {
				t.Fatalf("%d of %d came back, then %d, wait %v", len(got), n, len(deliveries), wait)
			}
			got = append(got, ids(deliveries)...)
		}
		equal(t, "came back", len(got), n)
	})
}

func TestALeaseThatRanOutStillSettlesUntilTheTaskIsTaken(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	for _, action := range []duly.Action{duly.Acked, duly.Retried, duly.Released, duly.Buried} {
		id := fmt.Sprint(action)
		c.enqueue(t, id)
		d := c.popOne(t, id)
		c.step(2 * time.Hour)
		c.settle(t, action, d)
		_, err := c.q.Cancel(t.Context(), id)
		must(t, err)
	}
	equal(t, "reclaimed", c.stats(t).Counters["reclaimed"], 0)
}
