package queue_test

import (
	"errors"
	"time"

	"pgregory.net/rapid"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// recur asks for one of two tasks of an ID, so that it is often there already.
func (s *machine) recur(rt *rapid.T) {
	id := machineIDs().Draw(rt, "id")
	task := duly.Task{ID: id, Kind: "test", Payload: rapid.SampledFrom([][]byte{{'1'}, {'2'}}).Draw(rt, "payload"), Every: "@hourly"}
	if task.Payload[0] == '2' {
		task.LockKey = "key"
	}
	hours := time.Duration(rapid.IntRange(1, 4).Draw(rt, "hours")) * time.Hour
	var due, first time.Time
	dead := false
	now := s.during(rt, func() (err error) {
		due, err = s.q.Recur(rt.Context(), task, func(now time.Time) time.Time {
			first = now.Add(hours + 45*time.Minute)
			return first
		})
		if dead = errors.Is(err, duly.ErrDead); dead {
			return nil
		}
		return err
	})
	at := first.UnixMicro()
	want, wantDead := s.m.recur(task, span{at, at}, now)
	same(rt, "recurs", []any{dead, due.IsZero()}, []any{wantDead, want == span{}})
	if at := due.UnixMicro(); !due.IsZero() && (at < want.lo || at > want.hi) {
		rt.Fatalf("%s recurs at %d, want %d to %d", id, at, want.lo, want.hi)
	}
}

// recur returns when the task is due next, zero if it runs, and whether it is dead.
func (m *model) recur(task duly.Task, first, now span) (due span, dead bool) {
	t := m.tasks[task.ID]
	if t == nil {
		_, _, due = m.enqueue(task, first, now, queue.Keep)
		return due, false
	}
	follows := t.task
	if t.next != nil {
		follows = t.next.task
	}
	gone := t.state == queue.Leased && t.next == nil && (t.cancelled || t.last)
	switch same := !gone && string(follows.Payload) == string(task.Payload) && follows.Every == task.Every; {
	case same && t.state == queue.Dead:
		return span{}, true
	case same:
		_, _, due = m.enqueue(task, first, now, queue.Keep)
		return due, false
	case t.state == queue.Due && (t.due.lo <= now.lo || t.failures > 0):
		first = t.due
	}
	_, _, due = m.enqueue(task, first, now, queue.Replace)
	return due, false
}
