package workertest

import (
	"context"
	"fmt"

	"github.com/dulyhq/duly/worker"
)

// Cancel removes the task of an ID if it is due, and returns the state that it
// found: Due means that the task is gone and will not run. Of a Leased task a
// replacement is removed; it goes on itself. Dead, Done and Missing ones are
// left alone.
func (s *Source) Cancel(ctx context.Context, id string) (State, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return "", s.wrap("cancel in", err)
	}
	defer end()
	e := s.tasks[id]
	if e == nil {
		return Missing, nil
	}
	state := e.state
	if e.next = nil; state == Due {
		s.move(e, Missing, e.at)
		s.ended(Ended{ID: id, Action: Cancelled})
	}
	return state, nil
}

// Reschedule makes a due task due at another time: one option, [In] or [At]. It
// returns the state that it found: Due means that the task was moved. Of a
// Leased task the replacement is moved, if there is one; Dead, Done and Missing
// ones are left alone.
func (s *Source) Reschedule(ctx context.Context, id string, when EnqueueOption) (State, error) {
	o, err := enqueueOptionsOf([]EnqueueOption{when})
	if err == nil && !o.timed {
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
	case e.state == Due:
		s.move(e, Due, o.due(s.now()))
		s.hint()
	case e.next != nil:
		e.next.due = o.due(s.now())
	}
	return e.state, nil
}
