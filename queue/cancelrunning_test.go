package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// everyAction is all that settling can do.
var everyAction = []duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried}

// cancelRunning cancels the run of "x" and wants the state that it finds.
func (r *rig) cancelRunning(t *testing.T, want queue.State) {
	t.Helper()
	got, err := r.q.CancelRunning(t.Context(), "x")
	must(t, err)
	equal(t, "found", got, want)
}

func TestCancelRunningIsCancelForWhatDoesNotRun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for _, start := range []string{"missing", "due", "dead"} {
			t.Run(start, func(t *testing.T) {
				r, same := main.another(t, queue.Config{}), main.another(t, queue.Config{})
				at := r.now(t).Add(time.Hour)
				starts[start](t, r, at)
				starts[start](t, same, at)
				want, err := same.q.Cancel(t.Context(), "x")
				must(t, err)
				r.cancelRunning(t, want)
				equal(t, "state", r.get(t, "x").State, same.get(t, "x").State)
				equal(t, "counters", r.stats(t).Counters, same.stats(t).Counters)
				equal(t, "marks", len(r.snapshot(t).cancel), 0)
			})
		}
	})
}

func TestACancelledRunIsNeitherRetriedNorBuriedAndAnAckStands(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for _, action := range everyAction {
			for _, size := range []int{1, 60} { // alone, and in a batch that finds its leases otherwise
				t.Run(fmt.Sprint(action, " of ", size), func(t *testing.T) {
					r := main.another(t, queue.Config{})
					r.enqueue(t, "x")
					r.lapse(t, r.popOne(t, "x")) // it has a crash behind it
					r.settle(t, duly.Retried, r.popOne(t, "x"))
					for i := range size - 1 {
						r.enqueue(t, strconv.Itoa(i))
					}
					ds := r.pop(t, size)
					equal(t, "popped", len(ds), size)
					r.cancelRunning(t, queue.Leased)
					r.cancelRunning(t, queue.Leased)
					r.wantState(t, queue.Leased, "x")
					r.settle(t, action, ds...)
					r.wantState(t, queue.Missing, "x")

					s := r.snapshot(t)
					equal(t, "marks", len(s.cancel), 0)
					want, others := map[string]string{"enqueued": strconv.Itoa(size), "reclaimed": "1", "retry": "1"}, size-1
					if action == duly.Acked {
						others++
					} else {
						want["cancelled"] = "1"
					}
					if action == duly.Retried {
						others++
					}
					if others > 0 {
						want[string(action)] = strconv.Itoa(others)
					}
					equal(t, "counters", s.stat, want)
				})
			}
		}
	})
}

// Both orders of a cancellation and of the end of the run: the first one counts.
func TestACancellationThatComesAfterTheEndFindsWhatThatLeft(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for action, found := range map[duly.Action]queue.State{
			duly.Acked: queue.Missing, duly.Dropped: queue.Missing, duly.Retried: queue.Due, duly.Released: queue.Due, duly.Buried: queue.Dead,
		} {
			r := main.another(t, queue.Config{})
			d := r.leased(t, "x")["x"]
			r.settle(t, action, d)
			r.cancelRunning(t, found)
			left := queue.Missing
			if found == queue.Dead {
				left = queue.Dead
			}
			r.wantState(t, left, "x")
			equal(t, "marks", len(r.snapshot(t).cancel), 0)
		}
	})
}

func TestALostReplyToTheSettlementOfACancelledRunIsReportedAsLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for _, action := range everyAction {
			r := main.another(t, queue.Config{})
			d := r.leased(t, "x")["x"]
			r.cancelRunning(t, queue.Leased)
			how := []duly.Settlement{{Delivery: d, Action: action, Err: errors.New("test")}}
			r.link.lose()
			_, err := r.q.Settle(t.Context(), how)
			wants(t, err, queue.ErrUnknownOutcome)
			r.wantState(t, queue.Missing, "x")
			r.enqueue(t, "x") // which the second settlement must not end
			r.unchanged(t, func() {
				lost, err := r.q.Settle(t.Context(), how)
				must(t, err)
				equal(t, "lost", ids(lost), []string{"x"})
			})
			r.settle(t, duly.Acked, r.popOne(t, "x"))
		}
	})
}

// The reply to a settlement is lost, and so it is not known that the run has ended
// when it is cancelled. What it left is due, and is cancelled as such.
func TestACancellationBetweenALostSettlementAndItsRepetition(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		how := []duly.Settlement{{Delivery: r.leased(t, "x")["x"], Action: duly.Retried}}
		r.link.lose()
		_, err := r.q.Settle(t.Context(), how)
		wants(t, err, queue.ErrUnknownOutcome)
		r.cancelRunning(t, queue.Due)
		lost, err := r.q.Settle(t.Context(), how)
		must(t, err)
		equal(t, "lost", ids(lost), []string{"x"})
		r.wantState(t, queue.Missing, "x")
	})
}

func TestALostReplyToCancelRunningIsUnknownAndCancellingAgainIsHarmless(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d := r.leased(t, "x")["x"]
		r.link.lose()
		_, err := r.q.CancelRunning(t.Context(), "x")
		wants(t, err, queue.ErrUnknownOutcome)
		r.unchanged(t, func() { r.cancelRunning(t, queue.Leased) })
		r.settle(t, duly.Retried, d)
		r.wantState(t, queue.Missing, "x")
		equal(t, "cancelled", r.stats(t).Counters["cancelled"], 1)
	})
}

func TestExtendTellsWhichAreCancelledAndExtendsThem(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	for _, id := range []string{"a", "x", "y", "z"} {
		c.enqueue(t, id)
	}
	ds := c.pop(t, 4)
	c.settle(t, duly.Acked, ds[0])
	c.cancelRunning(t, queue.Leased)
	_, err := c.q.CancelRunning(t.Context(), "z")
	must(t, err)
	c.step(59 * time.Minute)
	lost, cancelled, err := c.q.Extend(t.Context(), ds, time.Hour)
	must(t, err)
	equal(t, "lost and cancelled", [][]string{ids(lost), ids(cancelled)}, [][]string{{"a"}, {"x", "z"}})
	equal(t, "the delivery", cancelled[0] == ds[1], true)
	c.step(time.Hour - time.Microsecond)
	equal(t, "popped 1 µs before the extended lease ends", ids(c.pop(t, 9)), []string{})
	c.settle(t, duly.Buried, ds[1], ds[2], ds[3])
	c.wantState(t, queue.Missing, "x", "z")
	c.wantState(t, queue.Dead, "y")
}

func TestACancelledTaskWhoseLeaseRanOutIsGone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x")
		r.settle(t, duly.Retried, r.popOne(t, "x"))
		d := r.popOne(t, "x")
		other := r.leased(t, "other")["other"]
		r.cancelRunning(t, queue.Leased)
		r.lapse(t, d, other)
		equal(t, "popped", ids(r.pop(t, 9)), []string{"other"})
		r.wantState(t, queue.Missing, "x")
		equal(t, "counters", r.stats(t).Counters, map[string]int64{"enqueued": 2, "retry": 1, "reclaimed": 2, "cancelled": 1})
		lost, err := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: duly.Acked}})
		must(t, err)
		equal(t, "lost", ids(lost), []string{"x"})
		r.enqueue(t, "x")
		d = r.popOne(t, "x")
		equal(t, "attempt, crashes", []int{d.Attempt, d.Crashes}, []int{1, 0})
	})
}

// The worker never heard of what its pop leased, so nothing has begun.
func TestWhatALostPopLeasedIsNotRunIfItWasCancelled(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "x", "y", "z"} {
			r.enqueue(t, id)
		}
		r.link.lose()
		_, _, err := r.q.Pop(t.Context(), 4, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		r.cancelRunning(t, queue.Leased)
		_, err = r.q.CancelRunning(t.Context(), "z")
		must(t, err)
		next := duly.Task{ID: "z", Kind: "next"}
		_, err = r.q.Enqueue(t.Context(), next, queue.In(time.Hour), queue.OnConflict(queue.Replace))
		must(t, err)
		equal(t, "repeated", ids(r.pop(t, 2)), []string{"a", "y"})
		r.wantState(t, queue.Missing, "x")
		equal(t, "the replacement", []any{r.get(t, "z").State, r.get(t, "z").Kind}, []any{queue.Due, "next"})
		equal(t, "cancelled", r.stats(t).Counters["cancelled"], 2)
	})
}

func TestCancelRunningReachesARunAlsoWhenTheFenceIsLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for _, fence := range []string{"", "garbage"} {
			r := main.another(t, queue.Config{})
			d := r.leased(t, "x")["x"]
			must(t, r.Del(t.Context(), r.key("fence")).Err())
			if fence != "" {
				must(t, r.Set(t.Context(), r.key("fence"), fence, 0).Err())
			}
			r.cancelRunning(t, queue.Leased)
			r.settle(t, duly.Retried, d)
			r.wantState(t, queue.Missing, "x")
		}
	})
}

func TestCancelRunningRemovesTheReplacementThatWaits(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		starts["leased+next"](t, r, r.now(t).Add(time.Hour))
		r.cancelRunning(t, queue.Leased)
		equal(t, "replacement", r.get(t, "x").Replacement.IsZero(), true)
		kept := r.enqueue(t, "x")
		equal(t, "enqueued meanwhile", []any{kept.Outcome, kept.State}, []any{queue.Kept, queue.Leased})
		r.settle(t, duly.Retried, r.leasedNow(t)...)
		r.wantState(t, queue.Missing, "x")
	})
}

func TestWatchTellsOfCancelledRunsAndTakesNoHintForOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		type told struct {
			id    string
			fence uint64
		}
		hints, cancels := make(chan struct{}, 100), make(chan told, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.q.Watch(ctx, func(time.Duration) { hints <- struct{}{} }, func(id string, fence uint64) { cancels <- told{id, fence} })
		}()
		defer func() { cancel(); <-done }()
		awaitHint(t, hints)
		for _, id := range []string{"x", "7", "cancel 7 x", " ", "é:\u2028"} {
			r.enqueue(t, id)
			awaitHint(t, hints)
			d := r.popOne(t, id)
			_, err := r.q.CancelRunning(t.Context(), id)
			must(t, err)
			select {
			case got := <-cancels:
				equal(t, "told", got, told{id, d.Fence})
			case <-time.After(10 * time.Second):
				t.Fatalf("nothing told of %q in 10 s", id)
			}
			r.settle(t, duly.Dropped, d)
		}
		for _, payload := range []string{"cancel", "cancel x", "cancel -1 x", "cancelled 1 x", "unlocked", "1"} {
			must(t, r.Publish(t.Context(), r.key("wake"), payload).Err())
			awaitHint(t, hints)
		}
		equal(t, "told or hinted too much", []int{len(cancels), len(hints)}, []int{0, 0})
	})
}
