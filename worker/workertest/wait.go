package workertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// Wait returns how the task of an ID ends, once it has: at once for one that is
// done and kept, or dead. One that is retried, or replaced by another, has not
// ended; one that recurs has when its run is over. The error matches
// [duly.ErrNotFound] if there is no such task, or that of ctx.
func (s *Source) Wait(ctx context.Context, id string) (duly.Ended, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return duly.Ended{}, s.wrap("wait in", err)
	}
	e := s.tasks[id]
	answer := make(chan duly.Ended, 1)
	switch {
	case e == nil:
		end()
		return duly.Ended{}, s.wrap("wait in", duly.ErrNotFound)
	case e.state == Done:
		answer <- duly.Ended{ID: id, Action: duly.Acked, Result: bytes.Clone(e.result)}
	case e.state == Dead:
		answer <- e.buried()
	default:
		s.waiters[id] = append(s.waiters[id], answer)
	}
	end()
	select {
	case ended := <-answer:
		return ended, nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiters[id] = slices.DeleteFunc(s.waiters[id], func(c chan duly.Ended) bool { return c == answer })
		return duly.Ended{}, s.wrap("wait in", ctx.Err())
	}
}

// ended tells those who wait for a task. The lock is held.
func (s *Source) ended(how duly.Ended) {
	for _, answer := range s.waiters[how.ID] {
		answer <- how
	}
	delete(s.waiters, how.ID)
}

// buried is how a dead task ended.
func (e *entry) buried() duly.Ended {
	how := duly.Ended{ID: e.task.ID, Action: duly.Buried, Err: duly.Why(e.lastError)}
	if e.crashes > 0 {
		how.Err = duly.ErrCrashed
	}
	return how
}

// done ends a task that is acknowledged, and keeps it if it asks for that.
func (s *Source) done(e *entry, result []byte, now time.Time) {
	e.result = nil
	if len(result) > 0 {
		e.result = bytes.Clone(result)
	}
	if e.task.Retain.Truncate(time.Microsecond) > 0 {
		e.failures, e.lastError = 0, ""
		s.move(e, Done, now.Add(e.task.Retain.Truncate(time.Microsecond)))
	} else {
		s.move(e, Missing, now)
	}
	s.ended(duly.Ended{ID: e.task.ID, Action: duly.Acked, Result: bytes.Clone(e.result)})
}

// forget drops what has been kept long enough.
func (s *Source) forget() {
	now := s.now()
	for kept := *s.states[Done]; len(kept) > 0 && !kept[0].at.After(now); kept = *s.states[Done] {
		s.move(kept[0], Missing, now)
	}
}

// Progress keeps what a delivery reports of itself, JSON of 1 to
// [duly.MaxResult] bytes. It matches [duly.ErrLeaseLost] if the lease is no longer
// held; nothing has changed then.
func (s *Source) Progress(ctx context.Context, d *duly.Delivery, progress []byte) error {
	err := duly.CheckReport(progress)
	if d == nil || len(progress) == 0 {
		err = errors.New("no delivery or no progress")
	}
	if err != nil {
		return s.wrap("progress in", fmt.Errorf("%w: %w", worker.ErrInvalid, err))
	}
	end, err := s.begin(ctx)
	if err != nil {
		return s.wrap("progress in", err)
	}
	defer end()
	e := s.held(d)
	if e == nil {
		return s.wrap("progress in", duly.ErrLeaseLost)
	}
	e.progress = bytes.Clone(progress)
	return nil
}
