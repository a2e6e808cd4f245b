package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestCancelRemovesADueTaskAndTellsWhatItFound(t *testing.T) {
	t.Parallel()
	cases := []struct {
		start    string
		want     queue.State
		after    queue.State
		counters int64
	}{
		{"missing", queue.Missing, queue.Missing, 0},
		{"due", queue.Due, queue.Missing, 1},
		{"leased", queue.Leased, queue.Leased, 0},
		{"leased+next", queue.Leased, queue.Leased, 0},
		{"dead", queue.Dead, queue.Dead, 0},
	}
	onEach(t, func(t *testing.T, main *rig) {
		for _, c := range cases {
			t.Run(c.start, func(t *testing.T) {
				r := main.another(t, queue.Config{})
				starts[c.start](t, r, r.now(t).Add(time.Hour))
				got, err := r.q.Cancel(t.Context(), "x")
				must(t, err)
				equal(t, "found", got, c.want)
				info := r.get(t, "x")
				equal(t, "after", info.State, c.after)
				equal(t, "replacement", info.Replacement.IsZero(), true)
				equal(t, "cancelled", r.stats(t).Counters["cancelled"], c.counters)
				again, err := r.q.Cancel(t.Context(), "x")
				must(t, err)
				equal(t, "found by the second", again, c.after)
			})
		}
	})
}

func TestCancelForgetsATasksPast(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		starts["due"](t, r, r.now(t).Add(time.Hour))
		_, err := r.q.Cancel(t.Context(), "x")
		must(t, err)
		r.enqueue(t, "x")
		equal(t, "attempt", r.popOne(t, "x").Attempt, 1)
	})
}

func TestRemoveTakesATaskOnlyIfItsDueTimeIsStillTheSame(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for _, start := range []string{"missing", "due", "leased", "leased+next", "dead"} {
			t.Run(start, func(t *testing.T) {
				r := main.another(t, queue.Config{})
				due := r.now(t).Add(time.Hour)
				starts[start](t, r, due)
				for _, other := range []time.Time{due.Add(time.Microsecond), due.Add(-time.Microsecond), {}} {
					r.unchanged(t, func() {
						ok, err := r.q.Remove(t.Context(), "x", other)
						must(t, err)
						equal(t, fmt.Sprintf("removed at %v", other), ok, false)
					})
				}
				before := r.snapshot(t)
				ok, err := r.q.Remove(t.Context(), "x", due)
				must(t, err)
				equal(t, "removed at its own", ok, start == "due")
				if start != "due" {
					equal(t, "keys", r.snapshot(t), before)
				} else {
					r.wantState(t, queue.Missing, "x")
				}
			})
		}
	})
}

func TestRemoveLeavesATaskThatWasEnqueuedAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x", queue.In(time.Hour))
		seen, err := r.q.Peek(t.Context(), 1)
		must(t, err)
		r.enqueue(t, "x", queue.In(time.Hour), queue.OnConflict(queue.Replace))
		ok, err := r.q.Remove(t.Context(), "x", seen[0].At)
		must(t, err)
		equal(t, "removed", ok, false)
		r.wantState(t, queue.Due, "x")
	})
}

func TestRescheduleMovesADueTaskOrAWaitingReplacement(t *testing.T) {
	t.Parallel()
	cases := []struct {
		start string
		want  queue.State
	}{
		{"missing", queue.Missing},
		{"due", queue.Due},
		{"leased", queue.Leased},
		{"leased+next", queue.Leased},
		{"dead", queue.Dead},
	}
	onEach(t, func(t *testing.T, main *rig) {
		for _, c := range cases {
			t.Run(c.start, func(t *testing.T) {
				r := main.another(t, queue.Config{})
				due := r.now(t).Add(time.Hour)
				starts[c.start](t, r, due)
				before := r.snapshot(t)
				for _, to := range []time.Time{due.Add(3*time.Hour + time.Microsecond), due.Add(-30 * time.Minute)} {
					got, err := r.q.Reschedule(t.Context(), "x", queue.At(to))
					must(t, err)
					equal(t, "found", got, c.want)
					switch info := r.get(t, "x"); c.start {
					case "due":
						equal(t, "task", []any{info.State, info.At, info.Failures}, []any{"due", to, 1})
					case "leased+next":
						equal(t, "replacement", []any{info.State, info.Replacement}, []any{"leased", to})
					default:
						equal(t, "keys", r.snapshot(t), before)
					}
				}
			})
		}
	})
}

func TestRescheduleToThePastIsNow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, when := range []queue.EnqueueOption{
			queue.In(0), queue.In(-time.Hour), queue.At(time.Time{}), queue.At(time.Unix(1, 0)),
		} {
			r.enqueue(t, "x", queue.In(time.Hour))
			from := r.now(t)
			_, err := r.q.Reschedule(t.Context(), "x", when)
			must(t, err)
			d := r.popOne(t, "x")
			between(t, "due", d.Due, from, r.now(t))
			r.settle(t, duly.Acked, d)
		}
		r.enqueue(t, "x")
		from := r.now(t)
		_, err := r.q.Reschedule(t.Context(), "x", queue.In(time.Hour))
		must(t, err)
		between(t, "due", r.get(t, "x").At, from.Add(time.Hour), r.now(t).Add(time.Hour))
		equal(t, "popped", ids(r.pop(t, 1)), []string{})
	})
}

func TestAReplacementWaitsBehindTheRunAfterItWasMoved(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		starts["leased"](t, r, time.Time{})
		d := r.retake(t, "x")
		next := duly.Task{ID: "x", Kind: "next", Payload: []byte("9:\n\x00")}
		_, err := r.q.Enqueue(t.Context(), next, queue.In(time.Hour), queue.OnConflict(queue.Replace))
		must(t, err)
		_, err = r.q.Reschedule(t.Context(), "x", queue.In(0))
		must(t, err)
		equal(t, "popped during the run", ids(r.pop(t, 1)), []string{})
		r.settle(t, duly.Acked, d)
		equal(t, "task", r.popOne(t, "x").Task, next)
	})
}
