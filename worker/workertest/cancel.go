package workertest

import (
	"context"
	"fmt"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// Cancel removes the task of an ID if it is due, parked or not, and returns the state
// that it found: Due means that the task is gone and will not run. Of a Leased task a
// replacement is removed; it goes on itself, for the last time if it recurs. Dead,
// Done and Missing ones are left alone.
func (s *Source) Cancel(ctx context.Context, id string) (State, error) {
	return s.cancel(ctx, id, false)
}

// CancelRunning is [Source.Cancel] that also cancels a run: when it returns, the
// handler's context, in a worker that listens or in [RunDue], has ended with
// duly.ErrCancelled. However the run then ends, the task is gone: it is not retried,
// buried or repeated. An ack stands, and so does the run of a recurring task that was
// done. If its worker has died, it is gone when its lease has run out.
func (s *Source) CancelRunning(ctx context.Context, id string) (State, error) {
	return s.cancel(ctx, id, true)
}

func (s *Source) cancel(ctx context.Context, id string, running bool) (State, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return "", s.wrap("cancel in", err)
	}
	defer end()
	e := s.tasks[id]
	if e == nil {
		return Missing, nil
	}
	state := e.found()
	e.next, e.last = nil, state == Leased && e.task.Every != ""
	switch {
	case state == Due:
		s.move(e, Missing, e.at)
		s.ended(duly.Ended{ID: id, Action: duly.Cancelled})
		s.yield(e.task.LockKey)
		s.hint()
	case state == Leased && running:
		e.cancelled = true
		for w := range s.watchers {
			w.cancel(id, e.fence)
		}
	}
	return state, nil
}

// Reschedule makes a due task, parked or not, due at another time: one option, [In] or
// [At]. It returns the state that it found: Due means that the task was moved. Of a
// Leased task the replacement is moved, if there is one; Dead, Done and Missing ones
// are left alone.
func (s *Source) Reschedule(ctx context.Context, id string, when EnqueueOption) (State, error) {
	o, err := enqueueOptionsOf([]EnqueueOption{when})
	if err == nil && o.timed == 0 {
		err = fmt.Errorf("%w: neither In nor At", worker.ErrInvalid)
	}
	if err != nil {
		return "", s.wrap("reschedule in", err)
	}
	end, err := s.begin(ctx)
	if err != nil {
		return "", s.wrap("reschedule in", err)
	}
	defer end()
	e := s.tasks[id]
	if e == nil {
		return Missing, nil
	}
	switch {
	case e.waits():
		s.move(e, Due, o.due(s.now()))
		s.yield(e.task.LockKey)
		s.hint()
	case e.next != nil:
		e.next.due = o.due(s.now())
	}
	return e.found(), nil
}
