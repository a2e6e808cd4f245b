package workertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// ErrNotFound means that there is no task of this ID: it was never there, or it
// ended before the call and was not kept.
var ErrNotFound = errors.New("no such task")

// ErrCrashed is why a task ended that was buried because its leases ran out too
// often.
var ErrCrashed = errors.New("its workers crashed too often")

// Cancelled is how a task ended that was cancelled, before or while it ran.
const Cancelled duly.Action = "cancel"

// An Ended tells how a task ended: acked with its Result, as JSON or nil, dropped
// or buried because of Err, or cancelled. The run of one that recurs is acked too if
// it was done, else repeated because of Err. Err matches [duly.ErrExpired],
// [duly.ErrSkipped] or [ErrCrashed] if it was that; else it has the text of the
// handler's error.
type Ended struct {
	ID     string
	Action duly.Action
	Result []byte
	Err    error
}

// Decode decodes the result of a task that is done. It leaves v alone if there is
// none. If the task ended in another way the error says so and wraps Err.
func (e Ended) Decode(v any) error {
	switch {
	case e.Action != duly.Acked && e.Err != nil:
		return fmt.Errorf("workertest: task %q ended by %s: %w", e.ID, e.Action, e.Err)
	case e.Action != duly.Acked:
		return fmt.Errorf("workertest: task %q ended by %s", e.ID, e.Action)
	case e.Result == nil:
		return nil
	}
	if err := json.Unmarshal(e.Result, v); err != nil {
		return fmt.Errorf("workertest: result of task %q: %w", e.ID, err)
	}
	return nil
}

// Wait returns how the task of an ID ends, once it has: at once for one that is
// done and kept, or dead. One that is retried, or replaced by another, has not
// ended; one that recurs has when its run is over. The error matches [ErrNotFound] if there is no such task, or that of ctx.
func (s *Source) Wait(ctx context.Context, id string) (Ended, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return Ended{}, s.wrap("wait in", err)
	}
	e := s.tasks[id]
	answer := make(chan Ended, 1)
	switch {
	case e == nil:
		end()
		return Ended{}, s.wrap("wait in", ErrNotFound)
	case e.state == Done:
		answer <- Ended{ID: id, Action: duly.Acked, Result: bytes.Clone(e.result)}
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
		s.waiters[id] = slices.DeleteFunc(s.waiters[id], func(c chan Ended) bool { return c == answer })
		return Ended{}, s.wrap("wait in", ctx.Err())
	}
}

// ended tells those who wait for a task. The lock is held.
func (s *Source) ended(how Ended) {
	for _, answer := range s.waiters[how.ID] {
		answer <- how
	}
	delete(s.waiters, how.ID)
}

// buried is how a dead task ended.
func (e *entry) buried() Ended {
	how := Ended{ID: e.task.ID, Action: duly.Buried, Err: whyOf(e.lastError)}
	if e.crashes > 0 {
		how.Err = ErrCrashed
	}
	return how
}

func whyOf(text string) error {
	switch {
	case text == "":
		return nil
	case strings.HasPrefix(text, duly.ErrExpired.Error()):
		return duly.ErrExpired
	case text == duly.ErrSkipped.Error():
		return duly.ErrSkipped
	}
	return errors.New(text)
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
	s.ended(Ended{ID: e.task.ID, Action: duly.Acked, Result: bytes.Clone(e.result)})
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
	err := checkReport(progress)
	if d == nil || len(progress) == 0 {
		err = fmt.Errorf("%w: no delivery or no progress", worker.ErrInvalid)
	}
	if err != nil {
		return s.wrap("progress in", err)
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

func checkReport(report []byte) error {
	if len(report) > duly.MaxResult {
		return fmt.Errorf("%w: %w: %d bytes, over %d", worker.ErrInvalid, duly.ErrResultTooLarge, len(report), duly.MaxResult)
	}
	return nil
}
