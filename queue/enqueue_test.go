package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestEnqueueAnswersANewTaskWithWhenItIsDue(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		now := time.Now()
		from := r.now(t)
		receipts := map[string]queue.Receipt{
			"no option": r.enqueue(t, "no option"),
			"in 0":      r.enqueue(t, "in 0", queue.In(0)),
			"in -1h":    r.enqueue(t, "in -1h", queue.In(-time.Hour)),
			"in min":    r.enqueue(t, "in min", queue.In(-1<<63)),
			"at zero":   r.enqueue(t, "at zero", queue.At(time.Time{})),
			"at past":   r.enqueue(t, "at past", queue.At(now.Add(-time.Hour))),
			"at 1970":   r.enqueue(t, "at 1970", queue.At(time.Unix(0, 0))),
			"at 1969":   r.enqueue(t, "at 1969", queue.At(time.Unix(-1, 0))),
			"in 90m":    r.enqueue(t, "in 90m", queue.In(90*time.Minute)),
			"in 200y":   r.enqueue(t, "in 200y", queue.In(queue.MaxDelay)),
		}
		to := r.now(t)
		later := map[string]time.Duration{"in 90m": 90 * time.Minute, "in 200y": queue.MaxDelay}
		for id, receipt := range receipts {
			if receipt.ID != id || receipt.Outcome != queue.Added || receipt.State != queue.Missing || receipt.Err != nil {
				t.Errorf("%s: got %+v", id, receipt)
			}
			between(t, id, receipt.Due, from.Add(later[id]), to.Add(later[id]))
			if info := r.get(t, id); info.State != queue.Due || !info.At.Equal(receipt.Due) {
				t.Errorf("%s: it is %s at %v, want due at %v", id, info.State, info.At, receipt.Due)
			}
		}
	})
}

func TestAtIsKeptToTheMicrosecond(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		start := r.now(t).Truncate(time.Second)
		for i, at := range []time.Time{
			start.Add(time.Hour + 1*time.Microsecond),
			start.Add(time.Hour + 999_999*time.Microsecond),
			start.Add(time.Hour + 123_457*time.Microsecond + 999*time.Nanosecond),
			start.Add(1234567 * time.Hour).In(time.FixedZone("far", 9*3600)),
			time.UnixMicro(queue.MaxDue),
			time.UnixMicro(queue.MaxDue - 1),
		} {
			id := fmt.Sprint(i)
			want := at.UnixMicro()
			receipt := r.enqueue(t, id, queue.At(at))
			equal(t, "receipt", receipt.Due.UnixMicro(), want)
			equal(t, "info", r.get(t, id).At.UnixMicro(), want)
			again := r.enqueue(t, id)
			equal(t, "receipt of a duplicate", again.Due.UnixMicro(), want)
			if ok, err := r.q.Remove(t.Context(), id, receipt.Due); !ok || err != nil {
				t.Fatalf("not found at its own due time: %v, %v", ok, err)
			}
		}
	})
}

// starts brings the task "x" to where a conflict finds it: due, or to be due as
// a replacement, at a time, with one failed attempt behind it.
var starts = map[string]func(t *testing.T, r *rig, at time.Time){
	"missing": func(*testing.T, *rig, time.Time) {},
	"due": func(t *testing.T, r *rig, at time.Time) {
		r.enqueue(t, "x")
		r.settle(t, duly.Retried, r.popOne(t, "x"))
		_, err := r.q.Reschedule(t.Context(), "x", queue.At(at))
		must(t, err)
	},
	"leased": func(t *testing.T, r *rig, _ time.Time) {
		r.enqueue(t, "x")
		r.settle(t, duly.Retried, r.popOne(t, "x"))
		r.popOne(t, "x")
	},
	"leased+next": func(t *testing.T, r *rig, at time.Time) {
		r.enqueue(t, "x")
		r.settle(t, duly.Retried, r.popOne(t, "x"))
		r.popOne(t, "x")
		next := task("x")
		next.Payload = []byte("old")
		_, err := r.q.Enqueue(t.Context(), next, queue.At(at), queue.OnConflict(queue.Replace))
		must(t, err)
	},
	"dead": func(t *testing.T, r *rig, _ time.Time) { r.bury(t, "x") },
}

func TestEnqueueOfAnIDThatIsThere(t *testing.T) {
	t.Parallel()
	const sooner, later, same = -time.Minute, time.Minute, 0
	cases := []struct {
		start    string
		conflict queue.Conflict
		shift    time.Duration // of the new due time against the old
		outcome  queue.Outcome
		state    queue.State
		due      string // whose due time the receipt tells
	}{
		{"missing", queue.Keep, same, queue.Added, queue.Missing, "new"},
		{"missing", queue.Replace, same, queue.Added, queue.Missing, "new"},
		{"missing", queue.Earliest, same, queue.Added, queue.Missing, "new"},
		{"due", "", sooner, queue.Kept, queue.Due, "old"},
		{"due", queue.Keep, later, queue.Kept, queue.Due, "old"},
		{"due", queue.Replace, sooner, queue.Replaced, queue.Due, "new"},
		{"due", queue.Replace, later, queue.Replaced, queue.Due, "new"},
		{"due", queue.Earliest, sooner, queue.Replaced, queue.Due, "new"},
		{"due", queue.Earliest, same, queue.Kept, queue.Due, "old"},
		{"due", queue.Earliest, later, queue.Kept, queue.Due, "old"},
		{"leased", queue.Keep, sooner, queue.Kept, queue.Leased, "none"},
		{"leased", queue.Replace, later, queue.Replaced, queue.Leased, "new"},
		{"leased", queue.Earliest, later, queue.Replaced, queue.Leased, "new"},
		{"leased+next", queue.Keep, sooner, queue.Kept, queue.Leased, "old"},
		{"leased+next", queue.Replace, later, queue.Replaced, queue.Leased, "new"},
		{"leased+next", queue.Earliest, sooner, queue.Replaced, queue.Leased, "new"},
		{"leased+next", queue.Earliest, same, queue.Kept, queue.Leased, "old"},
		{"leased+next", queue.Earliest, later, queue.Kept, queue.Leased, "old"},
		{"dead", queue.Keep, sooner, queue.Kept, queue.Dead, "none"},
		{"dead", queue.Replace, later, queue.Replaced, queue.Dead, "new"},
		{"dead", queue.Earliest, later, queue.Replaced, queue.Dead, "new"},
	}
	onEach(t, func(t *testing.T, main *rig) {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s/%s/%v", c.start, c.conflict, c.shift), func(t *testing.T) {
				r := main.another(t, queue.Config{})
				old := r.now(t).Add(time.Hour)
				starts[c.start](t, r, old)
				times := map[string]time.Time{"old": old, "new": old.Add(c.shift), "none": {}}

				task := duly.Task{ID: "x", Kind: "test", Payload: []byte("new\x00\n\xff:")}
				opts := []queue.EnqueueOption{queue.At(times["new"])}
				if c.conflict != "" {
					opts = append(opts, queue.OnConflict(c.conflict))
				}
				before := r.snapshot(t)
				got, err := r.q.Enqueue(t.Context(), task, opts...)
				must(t, err)
				equal(t, "receipt", got, queue.Receipt{ID: "x", Outcome: c.outcome, State: c.state, Due: times[c.due]})
				if got.Outcome == queue.Kept {
					equal(t, "keys", r.snapshot(t), before)
					return
				}
				wantNew(t, r, c.state, times["new"], string(task.Payload))
			})
		}
	})
}

// wantNew checks that the new task waits, as it was given and without a past:
// behind the running one if the old one was leased.
func wantNew(t *testing.T, r *rig, was queue.State, due time.Time, payload string) {
	t.Helper()
	info := r.get(t, "x")
	if was == queue.Leased {
		equal(t, "running task", []any{info.State, string(info.Payload), info.Failures}, []any{"leased", "payload of x", 1})
		equal(t, "replacement", info.Replacement, due)
		deliveries, err := r.q.List(t.Context(), queue.Leased, 0, 1)
		must(t, err)
		equal(t, "leased", len(deliveries), 1)
		return
	}
	equal(t, "task", []any{info.State, string(info.Payload), info.At.UnixMicro()}, []any{"due", payload, due.UnixMicro()})
	equal(t, "its past", []any{info.Failures, info.LastError, info.Crashes}, []any{0, "", 0})
}

func TestAReplacementTakesTheRunningTasksPlaceHoweverThatEnds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for _, end := range []duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried, "crash"} {
			t.Run(string(end), func(t *testing.T) {
				r := main.another(t, queue.Config{})
				starts["leased"](t, r, time.Time{})
				d := r.retake(t, "x")
				next := duly.Task{ID: "x", Kind: "other", Payload: []byte("1:2\x00\r\n\xff")}
				due := r.now(t).Add(time.Hour)
				_, err := r.q.Enqueue(t.Context(), next, queue.At(due), queue.OnConflict(queue.Replace))
				must(t, err)
				if end == "crash" {
					r.lapse(t, d)
					equal(t, "popped", r.pop(t, 1), []*duly.Delivery{})
				} else {
					r.settle(t, end, d)
				}
				info := r.get(t, "x")
				equal(t, "task", []any{info.State, info.Kind, info.Payload, info.At}, []any{"due", "other", next.Payload, due})
				equal(t, "its past", []any{info.Failures, info.LastError, info.Crashes, info.Replacement.IsZero()}, []any{0, "", 0, true})
			})
		}
	})
}

// retake lets the lease of a task run out, so that it has crashed, and pops it.
func (r *rig) retake(t *testing.T, id string) *duly.Delivery {
	t.Helper()
	leased, err := r.q.List(t.Context(), queue.Leased, 0, 10)
	must(t, err)
	if len(leased) != 1 {
		t.Fatalf("%d tasks are leased, want 1", len(leased))
	}
	must(t, r.Eval(t.Context(), `
		local member = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
		return redis.call('ZADD', KEYS[1], 1, member)`, []string{r.key("leased")}).Err())
	return r.popOne(t, id)
}

func TestEnqueueMintsATimeOrderedIDAndKeepsItAfterAnError(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		last := ""
		for range 3 {
			receipt, err := r.q.Enqueue(t.Context(), duly.Task{Kind: "test"})
			must(t, err)
			if id := receipt.ID; len(id) != 36 || id[14] != '7' || id[:13] < last[:min(len(last), 13)] {
				t.Fatalf("minted %q after %q", id, last)
			}
			last = receipt.ID
		}
		r.link.lose()
		receipt, err := r.q.Enqueue(t.Context(), duly.Task{Kind: "test"})
		wants(t, err, queue.ErrUnknownOutcome)
		again, err := r.q.Enqueue(t.Context(), duly.Task{ID: receipt.ID, Kind: "test"})
		must(t, err)
		equal(t, "outcome", again.Outcome, queue.Kept)
	})
}

func TestEnqueueRefusesATaskThatCouldNotBeMade(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	kind := duly.Kind[func()]{Name: "test"}
	_, err := r.q.Enqueue(t.Context(), kind.Task(nil))
	wants(t, err, queue.ErrInvalid)
	if errors.Unwrap(err) == nil || r.link.scripts.Load() != 0 {
		t.Fatalf("%d scripts sent, error %v", r.link.scripts.Load(), err)
	}
}
