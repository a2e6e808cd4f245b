package workertest

import (
	"bytes"
	"context"
	"maps"
	"reflect"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

var _ worker.Recurrer = (*Source)(nil)

// CheckTask reports why the source would not take a task; such an error matches
// [worker.ErrInvalid].
func (s *Source) CheckTask(task duly.Task) error {
	if err := checkTask(&task); err != nil {
		return s.wrap("task for", err)
	}
	return nil
}

// Recur makes sure that a recurring task is there, and returns when it is due next:
// the zero time if it runs now. One that is not there is added, due at what first
// returns for the source's now. One that is the same, in all but its due time, is
// kept as it is. If it differs it is replaced; one that is overdue or was to be
// retried keeps its due time, though, and one that is running is replaced when
// that ends. One that is dead and the same is left alone, and the error matches
// [duly.ErrDead].
func (s *Source) Recur(ctx context.Context, task duly.Task, first func(now time.Time) time.Time) (due time.Time, err error) {
	if err := s.CheckTask(task); err != nil {
		return time.Time{}, err
	}
	end, err := s.begin(ctx)
	if err != nil {
		return time.Time{}, s.wrap("recur in", err)
	}
	defer end()
	now, mode := s.now(), Keep
	if due = first(now); due.IsZero() {
		due = now
	}
	due = time.UnixMicro(due.UnixMicro())
	if e := s.tasks[task.ID]; e != nil {
		switch same := e.follows(task); {
		case same && e.state == Dead:
			return time.Time{}, s.wrap("recur in", duly.ErrDead)
		case !same:
			mode = Replace
		}
		if e.waits() && (!e.at.After(now) || e.failures > 0) {
			due = e.at
		}
	}
	receipt := s.enqueue(copyOf(task), due, mode)
	s.hint()
	return receipt.Due, nil
}

// follows reports whether a task is the one that is to run next.
func (e *entry) follows(task duly.Task) bool {
	next := e.task
	if e.next != nil {
		next = e.next.task
	}
	if e.over() && e.next == nil || !bytes.Equal(next.Payload, task.Payload) || !maps.Equal(next.Headers, task.Headers) ||
		micros(next.Expires) != micros(task.Expires) {
		return false
	}
	for _, t := range []*duly.Task{&next, &task} {
		t.Payload, t.Headers, t.Expires = nil, nil, time.Time{}
	}
	return reflect.DeepEqual(next, task)
}

// micros are those since 1970, 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
