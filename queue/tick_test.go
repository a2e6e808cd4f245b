package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A tick is a run of a recurring task. Here is what it has in common with other runs:
// lock keys, cancellations, results and limits.

// tick settles a delivery as repeated in an hour, with a result or an error.
func (r *rig) tick(t *testing.T, d *duly.Delivery, result string, reason error) {
	t.Helper()
	lost, err := r.q.Settle(t.Context(), []duly.Settlement{{
		Delivery: d, Action: duly.Repeated, At: d.Popped.Add(time.Hour), Result: []byte(result), Err: reason,
	}})
	must(t, err)
	equal(t, "lost", ids(lost), []string{})
}

func TestARecurringTaskIsExclusiveAndLetsItsLockKeyGoWithEachTick(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		x := hourly("x", "1")
		x.LockKey = "key"
		_, err := r.q.Recur(t.Context(), x, in(0))
		must(t, err)
		d := r.popOne(t, "x")
		equal(t, "lock key", d.LockKey, "key")
		r.keyed(t, "key", "y")
		equal(t, "popped while it runs", ids(r.pop(t, 9)), []string{})
		r.wantState(t, queue.Parked, "y")
		r.tick(t, d, "", nil)
		y := r.popOne(t, "y")

		_, err = r.q.Reschedule(t.Context(), "x", queue.In(0))
		must(t, err)
		equal(t, "popped while another has the key", ids(r.pop(t, 9)), []string{})
		r.wantState(t, queue.Parked, "x")
		changed := x
		changed.Payload = []byte("2")
		overdue := r.get(t, "x").At
		due, err := r.q.Recur(t.Context(), changed, in(time.Hour))
		must(t, err)
		equal(t, "due, of one that was parked and is changed", due, overdue)
		r.settle(t, duly.Acked, y)
		d = r.popOne(t, "x")
		equal(t, "payload", string(d.Payload), "2")
		r.tick(t, d, "", errors.New("declined"))
		free, err := r.q.Locker().TryAcquire(t.Context(), "key", time.Minute)
		must(t, err)
		must(t, free.Release(t.Context()))
	})
}

// Cancel lets the run go on and CancelRunning tells it to end. To the task they do
// the same: it is gone when the run is over. What was done is told to those who wait.
func TestACancelledTickIsTheLastAndWhatItBroughtStands(t *testing.T) {
	t.Parallel()
	one := duly.Ended{ID: "x", Action: duly.Acked, Result: []byte("1")}
	none := duly.Ended{ID: "x", Action: duly.Cancelled}
	verbs := map[string]func(*rig, *testing.T) (queue.State, error){
		"cancel":         func(r *rig, t *testing.T) (queue.State, error) { return r.q.Cancel(t.Context(), "x") },
		"cancel running": func(r *rig, t *testing.T) (queue.State, error) { return r.q.CancelRunning(t.Context(), "x") },
		"both": func(r *rig, t *testing.T) (queue.State, error) {
			_, err := r.q.CancelRunning(t.Context(), "x")
			must(t, err)
			return r.q.Cancel(t.Context(), "x")
		},
	}
	ends := map[string]struct {
		how  duly.Settlement
		want duly.Ended
	}{
		"ticked":   {duly.Settlement{Action: duly.Repeated, Result: []byte("1")}, one},
		"acked":    {duly.Settlement{Action: duly.Acked, Result: []byte("1")}, one},
		"failed":   {duly.Settlement{Action: duly.Repeated, Err: errors.New("declined")}, none},
		"retried":  {duly.Settlement{Action: duly.Retried}, none},
		"released": {duly.Settlement{Action: duly.Released}, none},
		"dropped":  {duly.Settlement{Action: duly.Dropped}, none},
		"buried":   {duly.Settlement{Action: duly.Buried}, none},
		"crashed":  {duly.Settlement{}, none},
	}
	for name, verb := range verbs {
		for end, c := range ends {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				onEach(t, func(t *testing.T, r *rig) {
					r.recur(t, hourly("x", "1"), 0)
					r.settle(t, duly.Retried, r.popOne(t, "x"))
					d := r.popOne(t, "x")
					must(t, r.q.Progress(t.Context(), d, []byte("1")))
					w := r.wait(t, t.Context(), 1, "x")
					state, err := verb(r, t)
					must(t, err)
					equal(t, "found", state, queue.Leased)
					if c.how.Action == "" {
						r.lapse(t, d)
						equal(t, "popped", ids(r.pop(t, 9)), []string{})
					} else {
						how := c.how
						how.Delivery, how.At = d, d.Popped
						lost, err := r.q.Settle(t.Context(), []duly.Settlement{how})
						must(t, err)
						equal(t, "lost", ids(lost), []string{})
					}
					equal(t, "told", w.get(t), c.want)
					counted := map[bool]string{true: "ack", false: "cancelled"}[c.want.Action == duly.Acked]
					equal(t, "counted as "+counted, r.stats(t).Counters[counted], 1)
					s := r.snapshot(t)
					equal(t, "left", len(s.due)+len(s.task)+len(s.next)+len(s.fail)+len(s.crash)+len(s.progress), 0)
					equal(t, "popped at last", ids(r.pop(t, 9)), []string{})
				})
			})
		}
	}
}

// What Recur promises is that the task is there, so one that would be gone is not the
// same.
func TestRecurBringsBackARunThatWasCancelled(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.recur(t, hourly("x", "1"), 0)
		d := r.popOne(t, "x")
		r.cancelRunning(t, queue.Leased)
		due := r.recur(t, hourly("x", "1"), time.Hour)
		r.unchanged(t, func() { r.recur(t, hourly("x", "1"), 2*time.Hour) })
		r.settle(t, duly.Dropped, d)
		info := r.get(t, "x")
		equal(t, "what follows", []any{info.State, info.At, info.Every}, []any{"due", due, "@hourly"})
	})
}

func TestWaitReturnsWhenTheRunOfARecurringTaskIsOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result string
		reason error
		want   duly.Ended
	}{
		"done":      {"", nil, duly.Ended{ID: "x", Action: duly.Acked}},
		"result":    {`{"sum":42}`, nil, duly.Ended{ID: "x", Action: duly.Acked, Result: []byte(`{"sum":42}`)}},
		"failed":    {"7", errors.New("declined"), duly.Ended{ID: "x", Action: duly.Repeated, Err: errors.New("declined")}},
		"was late":  {"", duly.ErrSkipped, duly.Ended{ID: "x", Action: duly.Repeated, Err: duly.ErrSkipped}},
		"no reason": {"", errors.New(""), duly.Ended{ID: "x", Action: duly.Repeated}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				r.recur(t, hourly("x", "1"), 0)
				w := r.wait(t, t.Context(), 1, "x")
				r.settle(t, duly.Retried, r.popOne(t, "x"))
				w.still(t, r, "a retry")
				r.tick(t, r.popOne(t, "x"), c.result, c.reason)
				equal(t, "ended", w.get(t), c.want)
				if errors.Is(c.reason, duly.ErrSkipped) {
					wants(t, w.ended.Err, duly.ErrSkipped)
				}
				info := r.get(t, "x")
				equal(t, "the task", []any{info.State, len(info.Result)}, []any{"due", 0})
				next := r.wait(t, t.Context(), 1, "x")
				next.still(t, r, "the end of the run before")
				_, err := r.q.Cancel(t.Context(), "x")
				must(t, err)
				equal(t, "the next", next.get(t).Action, duly.Cancelled)
			})
		})
	}
}

func TestTheProgressOfATickGoesWithIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.recur(t, hourly("x", "1"), 0)
		d := r.popOne(t, "x")
		must(t, r.q.Progress(t.Context(), d, []byte("1")))
		r.tick(t, d, "2", nil)
		info := r.get(t, "x")
		equal(t, "progress, result", []string{string(info.Progress), string(info.Result)}, []string{"", ""})
	})
}

func TestLimitsCountRecurringTasksLikeOthers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.limit(t, queue.Limits{Running: 1, Rate: 1.0 / 3600, Burst: 3})
		r.recur(t, hourly("x", "1"), 0)
		r.enqueue(t, "y")
		d := r.popOneOf(t, 9)
		equal(t, "first", d.ID, "x")
		equal(t, "over the limit", ids(r.pop(t, 9)), []string{})
		r.tick(t, d, "", nil)
		r.settle(t, duly.Acked, r.popOneOf(t, 9))
		for _, want := range [][]string{{"x"}, {}} { // the burst is 3
			_, err := r.q.Reschedule(t.Context(), "x", queue.In(0))
			must(t, err)
			ds := r.pop(t, 9)
			equal(t, "as the rate allows", ids(ds), want)
			for _, d := range ds {
				r.tick(t, d, "", nil)
			}
		}
	})
}
