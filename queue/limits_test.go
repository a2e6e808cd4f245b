package queue_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func (r *rig) limit(tb testing.TB, l queue.Limits) {
	tb.Helper()
	must(tb, r.q.SetLimits(tb.Context(), l))
}

// popWait pops and returns the wait as well.
func (r *rig) popWait(tb testing.TB, n int) ([]*duly.Delivery, time.Duration) {
	tb.Helper()
	deliveries, wait, err := r.q.Pop(tb.Context(), n, time.Hour)
	must(tb, err)
	return deliveries, wait
}

func TestLimitsAreKeptAndShownToEveryProcess(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		other, _ := r.queue(t, queue.Config{})
		for _, l := range []queue.Limits{
			{},
			{Running: 3},
			{Rate: 0.1 + 0.2, Burst: 7},
			{Running: 1_000_000, Rate: 1_000_000, Burst: 1_000_000},
			{Rate: 1.0 / (30 * 24 * 3600), Burst: 1},
			{},
		} {
			r.limit(t, l)
			got, err := other.Limits(t.Context())
			must(t, err)
			equal(t, "limits", got, l)
			equal(t, "limits in the stats", r.stats(t).Limits, l)
		}
		for rate, burst := range map[float64]int{0.5: 1, 50: 1, 199: 1, 250: 2, 10_000: 100} {
			r.limit(t, queue.Limits{Rate: rate})
			equal(t, fmt.Sprintf("default burst at %v", rate), r.stats(t).Limits.Burst, burst)
		}
		r.limit(t, queue.Limits{})
		equal(t, "keys left", len(r.keysLike(t, "conf")), 0)
	})
}

func TestBadLimitsAreRefusedBeforeTheNetwork(t *testing.T) {
	t.Parallel()
	q := newQueue(t, offline(t), "orders", queue.Config{})
	for field, all := range map[string][]queue.Limits{
		"Running": {{Running: -1}, {Running: 1_000_001}, {Running: math.MaxInt}},
		"Rate": {
			{Rate: -1},
			{Rate: math.NaN()},
			{Rate: math.Inf(1)},
			{Rate: math.Inf(-1)},
			{Rate: 1_000_001},
			{Rate: 1e-300},
			{Rate: math.SmallestNonzeroFloat64},
		},
		"Burst": {{Burst: 1}, {Rate: 1, Burst: -1}, {Rate: 1, Burst: 1_000_001}, {Rate: 1, Burst: math.MaxInt}, {Rate: 0.001, Burst: 100_000}},
	} {
		for _, l := range all {
			err := q.SetLimits(t.Context(), l)
			refused(t, fmt.Sprint(l), err)
			if err != nil && !strings.Contains(err.Error(), field) {
				t.Errorf("%+v: the error does not name %s: %v", l, field, err)
			}
		}
	}
}

// What others may have written into the hash does not stop a queue.
func TestLimitsThatAreNoNumbersAreNone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		must(t, r.HSet(t.Context(), r.key("conf"), "running", "x", "rate", "y", "burst", "z", "tat", "w").Err())
		r.enqueue(t, "a")
		r.settle(t, duly.Acked, r.popOne(t, "a"))
		equal(t, "limits", r.stats(t).Limits, queue.Limits{})
		must(t, r.HSet(t.Context(), r.key("conf"), "rate", "1", "tat", "99999999999999999999999.999").Err())
		r.enqueue(t, "b")
		_, wait := r.popWait(t, 1)
		equal(t, "wait", wait > 0 && wait <= time.Second, true)
	})
}

// The server's own count is watched all the while, and so is what eight processes
// hold between a pop and the settlement.
func TestNeverMoreAreLeasedThanMayRunUnderConcurrentPops(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	const workers, most, tasks = 8, 5, 400
	_, err := r.q.EnqueueMany(t.Context(), many(tasks))
	must(t, err)
	r.limit(t, queue.Limits{Running: most})
	var held, done, over atomic.Int64
	var group sync.WaitGroup
	for range workers {
		q, _ := r.queue(t, queue.Config{})
		group.Go(func() {
			for done.Load() < tasks {
				deliveries, wait, err := q.Pop(t.Context(), 1+rand.IntN(10), time.Hour)
				if err != nil {
					t.Error(err)
					return
				}
				if n := int64(len(deliveries)); held.Add(n) > most {
					over.Add(1)
				}
				if len(deliveries) == 0 {
					<-time.After(min(wait, 2*time.Millisecond))
				}
				for _, d := range deliveries {
					held.Add(-1)
					action := []duly.Action{duly.Acked, duly.Released, duly.Retried}[rand.IntN(3)]
					if _, err := q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: action}}); err != nil {
						t.Error(err)
					}
					if action == duly.Acked {
						done.Add(1)
					}
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		group.Wait()
		close(finished)
	}()
	if peak := r.peak(t, finished); peak != most || over.Load() > 0 {
		t.Errorf("%d leases at once by the server, %d times more than %d by the processes; want %d and 0", peak, over.Load(), most, most)
	}
	equal(t, "done", done.Load(), tasks)
}

// peak is how many leases there were at most, by the server's count, until the end.
func (r *rig) peak(t *testing.T, end <-chan struct{}) (peak int) {
	t.Helper()
	for {
		select {
		case <-end:
			return peak
		default:
			n, err := r.ZCard(t.Context(), r.key("leased")).Result()
			must(t, err)
			peak = max(peak, int(n))
		}
	}
}

func TestALoweredLimitStopsNothingAndARaisedOneAppliesToTheNextPop(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		_, err := r.q.EnqueueMany(t.Context(), many(20))
		must(t, err)
		r.limit(t, queue.Limits{Running: 5})
		running := r.pop(t, 9)
		equal(t, "popped", len(running), 5)
		r.limit(t, queue.Limits{Running: 2})
		equal(t, "popped over the lowered limit", len(r.pop(t, 9)), 0)
		lost, _, err := r.q.Extend(t.Context(), running, time.Hour)
		must(t, err)
		equal(t, "lost", len(lost), 0)
		r.settle(t, duly.Acked, running[:3]...)
		equal(t, "popped at the lowered limit", len(r.pop(t, 9)), 0)
		r.settle(t, duly.Acked, running[3])
		running = append(running[4:], r.pop(t, 9)...)
		equal(t, "running at the lowered limit", len(running), 2)
		r.limit(t, queue.Limits{Running: 7})
		running = append(running, r.pop(t, 9)...)
		equal(t, "running at the raised limit", len(running), 7)
		r.limit(t, queue.Limits{})
		equal(t, "popped without one", len(r.pop(t, 20)), 9)
	})
}

// Pollers that were kept waiting are told when it is over, and others are not.
func TestRoomThatIsMadeIsHintedAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		hints, _ := watch(t, r)
		none := func(what string, f func()) {
			t.Helper()
			t.Log(what)
			noHint(t, r, hints, f)
		}
		hint := func(what string, f func()) {
			t.Helper()
			t.Log(what)
			f()
			awaitHint(t, hints)
			noHint(t, r, hints, func() {})
		}
		hint("tasks", func() {
			_, err := r.q.EnqueueMany(t.Context(), many(4))
			must(t, err)
		})
		none("an end without a limit", func() { r.settle(t, duly.Acked, r.pop(t, 1)...) })
		hint("a limit", func() { r.limit(t, queue.Limits{Running: 2}) })
		none("an end below the limit", func() { r.settle(t, duly.Acked, r.pop(t, 1)...) })
		var running []*duly.Delivery
		none("pops up to the limit", func() { running = append(r.pop(t, 1), r.pop(t, 9)...) })
		equal(t, "running", len(running), 2)
		none("an end at the limit when nothing waits", func() { r.settle(t, duly.Buried, running[0]) })
		hint("a task", func() { r.enqueue(t, "x") })
		running = append(running[1:], r.pop(t, 9)...)
		hint("another", func() { r.enqueue(t, "y") })
		hint("an end at the limit", func() { r.settle(t, duly.Acked, running[0]) })
		hint("no limit", func() { r.limit(t, queue.Limits{}) })
	})
}

// While all places are taken a poller sleeps until a lease ends, whatever is due.
func TestRoomForATaskThatIsDueLaterIsHintedWithItsTime(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.limit(t, queue.Limits{Running: 1})
	c.enqueue(t, "a")
	c.enqueue(t, "b", queue.In(10*time.Minute))
	running, wait := c.popWait(t, 9)
	equal(t, "wait for the end of the lease", []any{ids(running), wait}, []any{[]string{"a"}, time.Hour})
	sub := c.Subscribe(t.Context(), c.key("wake"))
	defer func() { _ = sub.Close() }()
	_, err := sub.Receive(t.Context())
	must(t, err)
	c.step(time.Minute)
	c.settle(t, duly.Acked, running...)
	message, err := sub.ReceiveMessage(t.Context())
	must(t, err)
	equal(t, "hint", message.Payload, (9 * time.Minute).Microseconds())
}

func TestLeasesOfADeadWorkerCountUntilTheyEnd(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	_, err := c.q.EnqueueMany(t.Context(), many(5))
	must(t, err)
	c.limit(t, queue.Limits{Running: 2})
	equal(t, "popped by the one that dies", len(c.pop(t, 9)), 2)
	other, _ := c.queue(t, queue.Config{})
	c.step(time.Hour - time.Microsecond)
	deliveries, wait, err := other.Pop(t.Context(), 9, time.Hour)
	must(t, err)
	equal(t, "popped while they last, wait", []any{len(deliveries), wait}, []any{0, time.Microsecond})
	c.step(time.Microsecond)
	equal(t, "popped at their end", ids(popFrom(t, other, 9)), []string{"00000", "00001"})
}

// A repeated pop brings what is leased already, also if there is room for no more.
func TestAPopThatIsRepeatedIsNotHeldBackByItsOwnLeases(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		_, err := r.q.EnqueueMany(t.Context(), many(5))
		must(t, err)
		r.limit(t, queue.Limits{Running: 2, Rate: 1.0 / 3600, Burst: 3})
		r.link.lose()
		_, _, err = r.q.Pop(t.Context(), 9, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		again := r.pop(t, 9)
		equal(t, "repeated", ids(again), []string{"00000", "00001"})
		r.settle(t, duly.Acked, again...)
		equal(t, "one more, for the repetition was not charged", ids(r.pop(t, 9)), []string{"00002"})
		equal(t, "and none", len(r.pop(t, 9)), 0)
	})
}

func TestAPausedQueueKeepsItsLimits(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		_, err := r.q.EnqueueMany(t.Context(), many(5))
		must(t, err)
		r.limit(t, queue.Limits{Running: 2})
		must(t, r.q.Pause(t.Context()))
		deliveries, wait := r.popWait(t, 9)
		equal(t, "popped while paused, wait", []any{len(deliveries), wait}, []any{0, 24 * time.Hour})
		r.limit(t, queue.Limits{Running: 3})
		equal(t, "popped while paused", len(r.pop(t, 9)), 0)
		must(t, r.q.Resume(t.Context()))
		equal(t, "popped", len(r.pop(t, 9)), 3)
	})
}

// A task that waits for its lock key is not leased, and makes room for others.
func TestParkedTasksTakeNoPlaceOfALimit(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for i, key := range []string{"k", "k", "k", "", ""} {
			one := task(fmt.Sprint(i))
			one.LockKey = key
			_, err := r.q.Enqueue(t.Context(), one)
			must(t, err)
		}
		r.limit(t, queue.Limits{Running: 2, Rate: 1.0 / 3600, Burst: 3})
		running := r.pop(t, 9)
		equal(t, "popped", ids(running), []string{"0", "3"})
		r.settle(t, duly.Acked, running[0])
		equal(t, "popped when the key is free", ids(r.pop(t, 9)), []string{"1"})
		r.settle(t, duly.Acked, running[1])
		equal(t, "popped over the rate", ids(r.pop(t, 9)), []string{})
	})
}
