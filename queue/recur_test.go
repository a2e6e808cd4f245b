package queue_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// hourly is a recurring task with a payload.
func hourly(id, payload string) duly.Task {
	return duly.Task{ID: id, Kind: "test", Payload: []byte(payload), Every: "@hourly", Grace: time.Minute}
}

// in makes a first tick.
func in(d time.Duration) func(time.Time) time.Time {
	return func(now time.Time) time.Time { return now.Add(d) }
}

func (r *rig) recur(t *testing.T, task duly.Task, first time.Duration) (due time.Time) {
	t.Helper()
	due, err := r.q.Recur(t.Context(), task, in(first))
	must(t, err)
	return due
}

// repeat settles a delivery as repeated.
func (r *rig) repeat(t *testing.T, d *duly.Delivery, at time.Time, reason error) {
	t.Helper()
	lost, err := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: duly.Repeated, At: at, Err: reason}})
	must(t, err)
	equal(t, "lost", ids(lost), []string{})
}

func TestARepeatedTaskIsDueAtItsTimeWithItsPastForgotten(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.recur(t, hourly("x", "1"), 0)
		r.settle(t, duly.Retried, r.popOne(t, "x"))
		r.lapse(t, r.popOne(t, "x"))
		d := r.popOne(t, "x")
		equal(t, "attempt and crashes before", []int{d.Attempt, d.Crashes}, []int{2, 1})

		at := d.Popped.Add(time.Hour)
		r.repeat(t, d, at, errors.New("declined"))
		info := r.get(t, "x")
		equal(t, "failed", []any{info.State, info.At, info.Failures, info.LastError, info.Crashes}, []any{"due", at, 0, "declined", 0})
		equal(t, "schedule", []any{info.Every, info.Grace}, []any{"@hourly", time.Minute})
		_, err := r.q.Reschedule(t.Context(), "x", queue.In(0))
		must(t, err)
		d = r.popOne(t, "x")
		equal(t, "attempt and crashes after", []int{d.Attempt, d.Crashes}, []int{1, 0})
		r.repeat(t, d, at, nil)
		equal(t, "done", r.get(t, "x").LastError, "")
		listed, err := r.q.List(t.Context(), queue.Due, 0, 9)
		must(t, err)
		equal(t, "listed", []any{len(listed), listed[0].Every, listed[0].At}, []any{1, "@hourly", at})
		equal(t, "repeated", r.stats(t).Counters["repeat"], 2)
	})
}

func TestALostReplyToARepetitionDoublesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.recur(t, hourly("x", "1"), 0)
		d := r.popOne(t, "x")
		again := []duly.Settlement{{Delivery: d, Action: duly.Repeated, At: d.Popped.Add(time.Hour)}}
		r.link.lose()
		_, err := r.q.Settle(t.Context(), again)
		wants(t, err, queue.ErrUnknownOutcome)
		r.unchanged(t, func() {
			again[0].At = d.Popped.Add(2 * time.Hour) // as a later try would have it
			lost, err := r.q.Settle(t.Context(), again)
			must(t, err)
			equal(t, "lost", ids(lost), []string{"x"})
		})
		equal(t, "due", r.get(t, "x").At, d.Popped.Add(time.Hour))
	})
}

func TestManyWhoAskForARecurringTaskHaveOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var all sync.WaitGroup
		for i := range 8 {
			other, _ := r.queue(t, queue.Config{})
			all.Go(func() {
				for range 5 {
					if _, err := other.Recur(t.Context(), hourly("x", "1"), in(time.Duration(i+1)*time.Hour)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		s := r.stats(t)
		equal(t, "due and enqueued", []any{s.Due, s.Counters["enqueued"]}, []any{1, 1})
	})
}

// The tick came between the look at the clock and the script.
func TestAFirstTickThatHasJustPassedKeepsItsTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		from := r.now(t)
		due := r.recur(t, hourly("x", "1"), -time.Second)
		between(t, "due", due, from.Add(-time.Second), r.now(t).Add(-time.Second))
		equal(t, "due as told", r.popOne(t, "x").Due, due)
	})
}

func TestALostReplyToRecurIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.recur(t, hourly("x", "1"), time.Hour)
		r.link.onReply(func() error { // that of the clock; the next is the one that counts
			r.link.lose()
			return nil
		})
		_, err := r.q.Recur(t.Context(), hourly("x", "2"), in(2*time.Hour))
		wants(t, err, queue.ErrUnknownOutcome)
		equal(t, "payload", string(r.get(t, "x").Payload), "2")
		r.unchanged(t, func() { r.recur(t, hourly("x", "2"), 3*time.Hour) })
	})
}

func TestRecurChangesATaskAsItsStateAllows(t *testing.T) {
	t.Parallel()
	const first = 5 * time.Hour
	retried := func(t *testing.T, r *rig, in time.Duration) {
		lost, err := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: r.popOne(t, "x"), Action: duly.Retried, In: in, Err: errors.New("test")}})
		must(t, err)
		equal(t, "lost", ids(lost), []string{})
	}
	for name, c := range map[string]struct {
		make  func(t *testing.T, r *rig) // from the task "1", which is due
		keeps bool                       // its due time
		state queue.State
	}{
		"waits for its tick": {func(t *testing.T, r *rig) { r.repeat(t, r.popOne(t, "x"), r.now(t).Add(time.Hour), nil) }, false, queue.Due},
		"waits after a tick that failed": {func(t *testing.T, r *rig) {
			r.repeat(t, r.popOne(t, "x"), r.now(t).Add(time.Hour), errors.New("test"))
		}, false, queue.Due},
		"is overdue":        {func(*testing.T, *rig) {}, true, queue.Due},
		"is to be retried":  {func(t *testing.T, r *rig) { retried(t, r, time.Hour) }, true, queue.Due},
		"runs":              {func(t *testing.T, r *rig) { r.popOne(t, "x") }, false, queue.Leased},
		"runs and is stale": {func(t *testing.T, r *rig) { r.popOne(t, "x"); r.recur(t, hourly("x", "3"), time.Minute) }, false, queue.Leased},
		"runs, cancelled": {func(t *testing.T, r *rig) {
			r.popOne(t, "x")
			_, err := r.q.Cancel(t.Context(), "x")
			must(t, err)
		}, false, queue.Leased},
		"is dead":        {func(t *testing.T, r *rig) { r.settle(t, duly.Buried, r.popOne(t, "x")) }, false, queue.Due},
		"does not recur": {func(t *testing.T, r *rig) { r.enqueue(t, "x", queue.OnConflict(queue.Replace), queue.In(time.Hour)) }, false, queue.Due},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				r.recur(t, hourly("x", "1"), 0)
				c.make(t, r)
				before, from := r.get(t, "x"), r.now(t)
				due := r.recur(t, hourly("x", "2"), first)
				to := r.now(t)
				info := r.get(t, "x")
				equal(t, "state", info.State, c.state)
				at := info.At
				if c.state == queue.Leased {
					equal(t, "what runs", string(info.Payload), "1")
					at = info.Replacement
				} else {
					equal(t, "what waits", []any{string(info.Payload), info.Failures, info.LastError}, []any{"2", 0, ""})
				}
				equal(t, "due as told", at, due)
				if c.keeps {
					equal(t, "due", due, before.At)
				} else {
					between(t, "due", due, from.Add(first), to.Add(first))
				}
				r.unchanged(t, func() { r.recur(t, hourly("x", "2"), time.Hour) })
			})
		})
	}
}

// A task that killed its workers must not be brought back by each that is started
// in their place. One that was changed is another try.
func TestRecurLeavesADeadTaskThatHasNotChanged(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.recur(t, hourly("x", "1"), 0)
		r.settle(t, duly.Buried, r.popOne(t, "x"))
		r.unchanged(t, func() {
			_, err := r.q.Recur(t.Context(), hourly("x", "1"), in(0))
			wants(t, err, duly.ErrDead)
		})
		n, err := r.q.Revive(t.Context(), "x")
		must(t, err)
		equal(t, "revived", n, 1)
		equal(t, "due", r.popOne(t, "x").Every, "@hourly")
	})
}

// However the cancelled run ends, nothing follows: not the next tick, nor a retry
// of this one.
func TestCancelMakesTheRunOfARecurringTaskItsLast(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, r *rig, d *duly.Delivery){
		"acked":    func(t *testing.T, r *rig, d *duly.Delivery) { r.settle(t, duly.Acked, d) },
		"dropped":  func(t *testing.T, r *rig, d *duly.Delivery) { r.settle(t, duly.Dropped, d) },
		"retried":  func(t *testing.T, r *rig, d *duly.Delivery) { r.settle(t, duly.Retried, d) },
		"released": func(t *testing.T, r *rig, d *duly.Delivery) { r.settle(t, duly.Released, d) },
		"buried":   func(t *testing.T, r *rig, d *duly.Delivery) { r.settle(t, duly.Buried, d) },
		"repeated": func(t *testing.T, r *rig, d *duly.Delivery) { r.repeat(t, d, d.Popped, nil) },
		"crashed": func(t *testing.T, r *rig, d *duly.Delivery) {
			r.lapse(t, d)
			equal(t, "popped", ids(r.pop(t, 9)), []string{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				r.recur(t, hourly("x", "1"), 0)
				r.settle(t, duly.Retried, r.popOne(t, "x"))
				r.lapse(t, r.popOne(t, "x"))
				d := r.popOne(t, "x")
				for range 2 {
					state, err := r.q.Cancel(t.Context(), "x")
					must(t, err)
					equal(t, "found", state, queue.Leased)
				}
				equal(t, "replacement", r.get(t, "x").Replacement.IsZero(), true)
				end(t, r, d)
				r.wantState(t, queue.Missing, "x")
				equal(t, "popped", ids(r.pop(t, 9)), []string{})
				state, err := r.q.Cancel(t.Context(), "x")
				must(t, err)
				equal(t, "found at last", state, queue.Missing)
				r.recur(t, hourly("x", "1"), 0)
				equal(t, "begun anew", r.popOne(t, "x").Attempt, 1)
			})
		})
	}
}

// A worker that starts with it asks for it, the same as it was.
func TestRecurBringsBackWhatWasCancelledWhileItRan(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.recur(t, hourly("x", "1"), 0)
		d := r.popOne(t, "x")
		_, err := r.q.Cancel(t.Context(), "x")
		must(t, err)
		due := r.recur(t, hourly("x", "1"), time.Hour)
		r.settle(t, duly.Acked, d)
		info := r.get(t, "x")
		equal(t, "what follows", []any{info.State, info.At, info.Every}, []any{"due", due, "@hourly"})
	})
}

// The reply to the pop was lost, so nothing has begun.
func TestALastRunThatHasNotBegunIsNotMade(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "a")
		r.recur(t, hourly("x", "1"), 0)
		r.link.lose()
		_, _, err := r.q.Pop(t.Context(), 2, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		_, err = r.q.Cancel(t.Context(), "x")
		must(t, err)
		equal(t, "repeated", ids(r.pop(t, 2)), []string{"a"})
		r.wantState(t, queue.Missing, "x")
	})
}

func TestReplaceAndRescheduleOfALastRun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.recur(t, hourly("x", "1"), 0)
		d := r.popOne(t, "x")
		_, err := r.q.Cancel(t.Context(), "x")
		must(t, err)
		r.unchanged(t, func() {
			state, err := r.q.Reschedule(t.Context(), "x", queue.In(time.Hour))
			must(t, err)
			equal(t, "rescheduled", state, queue.Leased)
			kept := r.enqueue(t, "x")
			equal(t, "kept", []any{kept.Outcome, kept.State}, []any{"kept", "leased"})
		})
		r.enqueue(t, "x", queue.OnConflict(queue.Earliest))
		r.settle(t, duly.Acked, d)
		equal(t, "what follows", r.popOne(t, "x").Every, "")
	})
}

func TestAFullRedisRepeatsAndCancelsRuns(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	r.recur(t, hourly("x", "1"), 0)
	r.recur(t, hourly("y", "1"), 0)
	ds := r.pop(t, 2)
	r.fill(t)
	r.repeat(t, ds[0], ds[0].Popped.Add(time.Hour), errors.New("test"))
	_, err := r.q.Cancel(t.Context(), ds[1].ID)
	must(t, err)
	r.repeat(t, ds[1], ds[1].Popped.Add(time.Hour), nil)
	r.wantState(t, queue.Due, ds[0].ID)
	r.wantState(t, queue.Missing, ds[1].ID)
	r.unchanged(t, func() {
		_, err := r.q.Recur(t.Context(), hourly(ds[0].ID, "2"), in(0))
		wants(t, err, queue.ErrFull)
	})
}

func TestRecurringTasksAreCheckedBeforeTheNetwork(t *testing.T) {
	t.Parallel()
	q := newQueue(t, offline(t), "orders", queue.Config{})
	refused(t, "task", q.CheckTask(duly.Task{ID: "x"}))
	must(t, q.CheckTask(hourly("x", "1")))
	d := &duly.Delivery{Task: hourly("x", "1"), Due: time.Now(), Fence: 1}
	for what, at := range map[string]time.Time{
		"no time": {}, "1970": time.Unix(0, 0), "a time too late": time.UnixMicro(queue.MaxDue).AddDate(1, 0, 0),
	} {
		_, err := q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: duly.Repeated, At: at}})
		refused(t, what, err)
	}
}
