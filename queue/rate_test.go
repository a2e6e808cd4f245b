package queue_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// exceeded looks for a window in which there were more tasks than a rate allows,
// among all that begin and end with one. It returns how many there were.
func exceeded(popped []time.Time, l queue.Limits) (n int, window time.Duration) {
	slices.SortFunc(popped, time.Time.Compare)
	for i := range popped {
		for j := i; j < len(popped); j++ {
			window := popped[j].Sub(popped[i])
			if most := float64(l.Burst) + l.Rate*window.Seconds(); float64(j-i+1) > most+1e-9*most {
				return j - i + 1, window
			}
		}
	}
	return 0, 0
}

// A checker that sees nothing proves nothing.
func TestTheRateCheckerSeesOneTaskTooMany(t *testing.T) {
	t.Parallel()
	l := queue.Limits{Rate: 10, Burst: 2}
	start := time.Unix(1, 0)
	at := func(ms ...int) (all []time.Time) {
		for _, ms := range ms {
			all = append(all, start.Add(time.Duration(ms)*time.Millisecond))
		}
		return all
	}
	for _, good := range [][]time.Time{nil, at(0, 0, 100, 200), at(0, 50, 100, 250, 300)} {
		if n, window := exceeded(good, l); n > 0 {
			t.Errorf("%v: %d in %v", good, n, window)
		}
	}
	for _, bad := range [][]time.Time{at(0, 0, 0), at(0, 0, 99), at(0, 0, 100, 199), at(900, 1000, 1000, 1050)} {
		if n, _ := exceeded(bad, l); n == 0 {
			t.Errorf("%v passed", bad)
		}
	}
}

// Whatever the rate, and however it is asked: at random times, at those that it was
// told to wait for, for one or many, and with what it got given back.
func TestNoWindowHasMoreThanBurstPlusRateTimesItsLength(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		r := *c.rig
		r.name = fmt.Sprintf("%s/%d", c.name, n)
		r.q = newQueue(t, c.under, r.name, queue.Config{})
		_, err := r.q.EnqueueMany(rt.Context(), many(200))
		check(rt, err)
		l := queue.Limits{
			Rate:  math.Pow(10, rapid.Float64Range(-5, 6).Draw(rt, "log of the rate")),
			Burst: rapid.IntRange(1, 20).Draw(rt, "burst"),
		}
		check(rt, r.q.SetLimits(rt.Context(), l))
		interval := float64(time.Second) / l.Rate
		var popped []time.Time
		for range 40 {
			deliveries, wait, err := r.q.Pop(rt.Context(), rapid.IntRange(1, 25).Draw(rt, "n"), time.Hour)
			check(rt, err)
			for _, d := range deliveries {
				popped = append(popped, d.Popped)
			}
			if rapid.Bool().Draw(rt, "give back") && len(deliveries) > 0 {
				_, err := r.q.Settle(rt.Context(), []duly.Settlement{{Delivery: deliveries[0], Action: duly.Released}})
				check(rt, err)
			}
			step := wait
			if rapid.Bool().Draw(rt, "at a random time") {
				step = time.Duration(rapid.Float64Range(0, 3).Draw(rt, "intervals") * interval).Truncate(time.Microsecond)
			}
			c.time = c.time.Add(min(step, 20*time.Minute)) // a lease may end: that task counts again
			c.mini.SetTime(c.time)
		}
		if n, window := exceeded(popped, l); n > 0 {
			rt.Fatalf("%+v: %d tasks in %v", l, n, window)
		}
	})
}

// A poller that comes when it was told to gets the whole rate, and never comes in
// vain. A wait is to the µs what it must be.
func TestAPollerThatComesWhenItWasToldGetsTheWholeRate(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	for _, l := range []queue.Limits{
		{Rate: 1, Burst: 1},
		{Rate: 3, Burst: 2},
		{Rate: 1.0 / 3600, Burst: 3},
		{Rate: 199, Burst: 1},
		{Rate: 700, Burst: 7},
		{Rate: 70_000, Burst: 50},
		{Rate: 1_000_000, Burst: 100},
	} {
		t.Run(fmt.Sprint(l.Rate), func(t *testing.T) {
			r := c.another(t, queue.Config{})
			const tasks = 150
			_, err := r.q.EnqueueMany(t.Context(), many(tasks))
			must(t, err)
			r.limit(t, l)
			start, got := c.time, 0
			for got < tasks {
				deliveries, wait := r.popWait(t, queue.MaxBatch)
				if len(deliveries) == 0 {
					t.Fatalf("%d tasks after %v, and it came in vain", got, c.time.Sub(start))
				}
				r.settle(t, duly.Acked, deliveries...)
				if got += len(deliveries); got == tasks {
					break
				}
				if got == l.Burst && l.Rate < 200 {
					exact := time.Duration(math.Ceil(1e6/l.Rate)) * time.Microsecond
					equal(t, "wait for the first after the burst", wait, exact)
				}
				c.time = c.time.Add(wait)
				c.mini.SetTime(c.time)
			}
			took, ideal := c.time.Sub(start).Seconds(), float64(tasks-l.Burst)/l.Rate
			if took < ideal || took > ideal*1.001+0.005 {
				t.Errorf("%d tasks took %v s, want %v", tasks, took, ideal)
			}
		})
	}
}

func TestARateThatHoldsTasksBackTellsExactlyHowLong(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	_, err := c.q.EnqueueMany(t.Context(), many(9))
	must(t, err)
	c.limit(t, queue.Limits{Rate: 3, Burst: 2})
	deliveries, wait := c.popWait(t, 9)
	equal(t, "popped, wait", []any{len(deliveries), wait}, []any{2, 333334 * time.Microsecond})
	c.step(333333 * time.Microsecond)
	deliveries, wait = c.popWait(t, 9)
	equal(t, "popped 1 µs early, wait", []any{len(deliveries), wait}, []any{0, time.Microsecond})
	c.step(time.Microsecond)
	deliveries, wait = c.popWait(t, 9)
	equal(t, "popped, wait", []any{len(deliveries), wait}, []any{1, 333333 * time.Microsecond}) // the third ns counts
	c.enqueue(t, "later", queue.In(time.Hour))
	c.step(time.Minute)
	equal(t, "popped, for nothing is saved beyond the burst", len(c.pop(t, 9)), 2)
}

func TestTheWaitIsForWhicheverIsLater(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.limit(t, queue.Limits{Rate: 1, Burst: 1})
	c.enqueue(t, "a")
	_, wait := c.popWait(t, 9)
	equal(t, "wait for the end of the lease", wait, time.Hour)
	c.enqueue(t, "b", queue.In(100*time.Millisecond))
	_, wait = c.popWait(t, 9)
	equal(t, "wait for the rate", wait, time.Second)
	c.step(950 * time.Millisecond)
	_, err := c.q.Reschedule(t.Context(), "b", queue.In(time.Minute))
	must(t, err)
	_, wait = c.popWait(t, 9)
	equal(t, "wait for the due time", wait, time.Minute)
}

func TestATaskGivenBackHasUsedItsPlaceInTheRate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "a")
		r.limit(t, queue.Limits{Rate: 1.0 / 3600, Burst: 2})
		r.settle(t, duly.Released, r.popOne(t, "a"))
		r.settle(t, duly.Released, r.popOne(t, "a"))
		deliveries, wait := r.popWait(t, 9)
		equal(t, "popped", ids(deliveries), []string{})
		between(t, "wait", time.Time{}.Add(wait), time.Time{}.Add(59*time.Minute), time.Time{}.Add(time.Hour))
	})
}

func TestARateThatIsChangedAppliesToTheNextPop(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	_, err := c.q.EnqueueMany(t.Context(), many(100))
	must(t, err)
	c.limit(t, queue.Limits{Rate: 1.0 / 3600, Burst: 10})
	equal(t, "popped", len(c.pop(t, 50)), 10)
	c.limit(t, queue.Limits{Rate: 10, Burst: 5})
	deliveries, wait := c.popWait(t, 50)
	equal(t, "popped at once at a higher rate, wait", []any{len(deliveries), wait}, []any{0, 100 * time.Millisecond})
	c.step(300 * time.Millisecond)
	equal(t, "popped 300 ms later", len(c.pop(t, 50)), 3)
	c.limit(t, queue.Limits{Rate: 1, Burst: 5})
	c.step(time.Second)
	equal(t, "popped at a lower rate", len(c.pop(t, 50)) <= 5, true)
	c.limit(t, queue.Limits{})
	equal(t, "popped without a rate", len(c.pop(t, 50)), 50)
	c.limit(t, queue.Limits{Rate: 1, Burst: 5})
	equal(t, "popped at a new rate", len(c.pop(t, 50)), 5)
}

func TestAClockSteppedBackCostsARateOneIntervalAtMost(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	_, err := c.q.EnqueueMany(t.Context(), many(9))
	must(t, err)
	for i := range 9 { // due in any case
		must(t, c.ZAddXX(t.Context(), c.key("due"), zAt(fmt.Sprintf("%05d", i), 5)).Err())
	}
	c.limit(t, queue.Limits{Rate: 2, Burst: 3})
	equal(t, "popped", len(c.pop(t, 9)), 3)
	c.step(-365 * 24 * time.Hour)
	deliveries, wait := c.popWait(t, 9)
	equal(t, "popped, wait", []any{len(deliveries), wait}, []any{0, time.Second / 2})
	c.step(wait)
	equal(t, "popped", len(c.pop(t, 9)), 1)
}

// By the times that the server gave the deliveries, with eight processes at it.
func TestTheRateHoldsForEightProcessesOnARealRedis(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	const tasks = 300
	_, err := r.q.EnqueueMany(t.Context(), many(tasks))
	must(t, err)
	l := queue.Limits{Rate: 333, Burst: 7}
	r.limit(t, l)
	var mu sync.Mutex
	var popped []time.Time
	var group sync.WaitGroup
	for range 8 {
		q, _ := r.queue(t, queue.Config{})
		group.Go(func() {
			for {
				deliveries, wait, err := q.Pop(t.Context(), 10, time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, d := range deliveries {
					popped = append(popped, d.Popped)
				}
				over := len(popped) == tasks
				mu.Unlock()
				if over {
					return
				}
				<-time.After(min(wait, 10*time.Millisecond))
			}
		})
	}
	group.Wait()
	equal(t, "popped", len(popped), tasks)
	if n, window := exceeded(popped, l); n > 0 {
		t.Errorf("%+v: %d tasks in %v", l, n, window)
	}
	t.Logf("%d tasks in %v", tasks, popped[tasks-1].Sub(popped[0]))
}
