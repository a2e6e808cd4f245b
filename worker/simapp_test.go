package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func (s *sim) enqueue(step simStep) {
	task := step.task
	if !task.Expires.IsZero() {
		task.Expires = s.begin.Add(task.Expires.Sub(time.Unix(0, 0))).Truncate(time.Microsecond)
	}
	version := string(task.Payload)
	s.alone(func() { s.acts[version] = step.acts })
	var receipt queue.Receipt
	_ = s.call("enqueue "+version, func() (err error) {
		receipt, err = s.app.Enqueue(context.Background(), task, queue.In(step.in), queue.OnConflict(step.conflict))
		return err
	}, func(m *simModel, _ *snapshot, now int64, err error) {
		due := now + step.in.Microseconds()
		outcome, state := m.enqueue(task, due, now, step.conflict)
		s.acked[version] = outcome != queue.Kept
		if !s.acked[version] {
			delete(s.acked, version)
		}
		if err == nil && (receipt.Outcome != outcome || receipt.State != state || outcome != queue.Kept && receipt.Due.UnixMicro() != due) {
			m.complain("receipt %+v, want %s of one that is %s", receipt, outcome, state)
		}
	})
}

func (s *sim) cancel(step simStep) {
	verb := s.app.Cancel
	if step.verb == "cancel run" {
		verb = s.app.CancelRunning
	}
	s.told(step, func() (queue.State, error) { return verb(context.Background(), step.id) },
		func(m *simModel, now int64) queue.State {
			state := m.cancel(step.id, step.verb == "cancel run", now)
			if state == queue.Leased && m.tasks[step.id].cancelled {
				s.tally["cancelled run"]++
			}
			return state
		})
}

func (s *sim) reschedule(step simStep) {
	s.told(step, func() (queue.State, error) { return s.app.Reschedule(context.Background(), step.id, queue.In(step.in)) },
		func(m *simModel, now int64) queue.State {
			return m.reschedule(step.id, now+step.in.Microseconds(), now)
		})
}

// told makes a call that tells the state which it found.
func (s *sim) told(step simStep, verb func() (queue.State, error), follow func(m *simModel, now int64) queue.State) {
	var got queue.State
	_ = s.call(step.verb+" "+step.id, func() (err error) {
		got, err = verb()
		return err
	}, func(m *simModel, _ *snapshot, now int64, err error) {
		if want := follow(m, now); err == nil && got != want {
			m.complain("found %s, want %s", got, want)
		}
	})
}

func (s *sim) revive(step simStep) {
	got := 0
	_ = s.call("revive "+step.id, func() (err error) {
		got, err = s.app.Revive(context.Background(), step.id)
		return err
	}, func(m *simModel, _ *snapshot, now int64, err error) {
		if want := m.revive(step.id, now); err == nil && got != want {
			m.complain("revived %d, want %d", got, want)
		}
	})
}

// wait waits for the end of a task for a while, beside the plan.
func (s *sim) wait(step simStep) {
	began := time.Now()
	var known int
	var state queue.State
	s.alone(func() { known, state = len(s.m.ends), s.m.state(step.id, began.UnixMicro()) })
	s.waits.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), step.in)
		defer cancel()
		ended, err := s.app.Wait(ctx, step.id)
		s.alone(func() { s.waited(step.id, state, began, s.m.ends[known:], ended, err) })
	})
}

// waited checks what one is told who waited for a task: its state was that when it
// began, and the ends are those that came meanwhile.
func (s *sim) waited(id string, state queue.State, began time.Time, ends []simEnd, ended duly.Ended, err error) {
	got := fmt.Sprintf("%s: %s", ended.Action, ended.Result)
	if ended.Err != nil {
		got = fmt.Sprintf("%s: %v", ended.Action, ended.Err)
	}
	resting := state == queue.Dead || state == queue.Done
	first := slices.IndexFunc(ends, func(e simEnd) bool { return e.id == id })
	right := slices.ContainsFunc(ends, func(e simEnd) bool { return e.id == id && e.how == got }) || resting
	switch {
	case errors.Is(err, duly.ErrNotFound):
		right = state == queue.Missing || first >= 0 && ends[first].at == began.UnixMicro()
	case errors.Is(err, context.DeadlineExceeded):
		right = first < 0 && !resting || first >= 0 && time.Since(time.UnixMicro(ends[first].at)) < 7*time.Second
	case err != nil:
		right = errors.Is(err, queue.ErrUnknownOutcome) || errors.Is(err, errCut)
	default:
		s.tally["waited"]++
	}
	if !right {
		s.errorf("who waited for %s from %v on, when it was %s, is told %q, %v; it ended %+v", id, began.Sub(s.begin), state, got, err, ends)
	}
}
