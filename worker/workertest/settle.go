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

// Extend makes leases last for the given time from now, and returns the
// deliveries whose lease is no longer held, and those that were cancelled, whose
// leases it extends too. The lease is 10 ms to 24 h.
func (s *Source) Extend(ctx context.Context, ds []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error) {
	err = checkLease(lease)
	if slices.Contains(ds, nil) {
		err = fmt.Errorf("%w: nil delivery", worker.ErrInvalid)
	}
	if err != nil {
		return nil, nil, s.wrap("extend", err)
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, nil, s.wrap("extend", err)
	}
	defer end()
	stop := s.now().Add(lease)
	for _, d := range ds {
		e := s.held(d)
		if e == nil {
			lost = append(lost, d)
			continue
		}
		s.move(e, Leased, stop)
		if e.cancelled {
			cancelled = append(cancelled, d)
		}
	}
	return lost, cancelled, nil
}

// Settle ends deliveries, each as its Action says, and returns those whose lease
// is no longer held: for them nothing has changed. A task that was replaced
// while it ran is due again as its replacement, whatever the action. One whose run
// was cancelled, or that recurs and was cancelled meanwhile, is gone, unless it was
// replaced since.
func (s *Source) Settle(ctx context.Context, ss []duly.Settlement) (lost []*duly.Delivery, err error) {
	for i := range ss {
		if err := checkSettlement(&ss[i]); err != nil {
			return nil, s.wrap("settle", err)
		}
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, s.wrap("settle", err)
	}
	defer end()
	now := s.now()
	for i := range ss {
		if e := s.held(ss[i].Delivery); e != nil {
			s.settle(e, &ss[i], now)
		} else {
			lost = append(lost, ss[i].Delivery)
		}
	}
	s.hint() // a task may be due again
	return lost, nil
}

func checkSettlement(how *duly.Settlement) error {
	switch how.Action {
	case duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried:
	case duly.Repeated:
		if how.At.Year() < 1970 || how.At.Year() > 2255 || how.At.UnixMicro() <= 0 {
			return fmt.Errorf("%w: due again at %v", worker.ErrInvalid, how.At)
		}
	default:
		return fmt.Errorf("%w: action %q", worker.ErrInvalid, how.Action)
	}
	switch {
	case how.Delivery == nil:
		return fmt.Errorf("%w: settlement without a delivery", worker.ErrInvalid)
	case how.In < 0 || how.In > maxDelay:
		return fmt.Errorf("%w: due again in %v", worker.ErrInvalid, how.In)
	case how.Action == duly.Acked || how.Action == duly.Repeated:
		if err := duly.CheckReport(how.Result); err != nil {
			return fmt.Errorf("%w: %w", worker.ErrInvalid, err)
		}
	}
	return nil
}

// held is the task of a delivery if its lease is held, or nil.
func (s *Source) held(d *duly.Delivery) *entry {
	e := s.tasks[d.ID]
	if e == nil || e.state != Leased || e.fence != d.Fence || !e.due.Equal(d.Due) {
		return nil
	}
	return e
}

func (s *Source) settle(e *entry, how *duly.Settlement, now time.Time) {
	if s.replaced(e) {
		return
	}
	again := now.Add(how.In.Truncate(time.Microsecond))
	if how.Action != duly.Released {
		e.crashes = 0
	} else if how.In == 0 {
		again = e.due
	}
	action, done := how.Action, how.Action == duly.Repeated && how.Err == nil
	switch {
	case e.over() && done:
		action = duly.Acked
	case e.over() && action != duly.Acked:
		s.cut(e, now)
		return
	}
	switch action {
	case duly.Acked:
		s.done(e, how.Result, now)
	case duly.Dropped:
		s.move(e, Missing, now)
		e.failed(how.Err)
		s.ended(duly.Ended{ID: e.task.ID, Action: duly.Dropped, Err: duly.Why(e.lastError)})
	case duly.Buried:
		e.failed(how.Err)
		if errors.Is(how.Err, duly.ErrExpired) {
			e.failures-- // no attempt was made
		}
		s.move(e, Dead, now)
		s.ended(e.buried())
	case duly.Retried:
		e.failed(how.Err)
		s.move(e, Due, again)
	case duly.Released:
		s.move(e, Due, again)
	case duly.Repeated:
		s.repeat(e, how)
	}
}

// repeat makes a task that recurs due again, as new but for the error of its last run.
func (s *Source) repeat(e *entry, how *duly.Settlement) {
	ended := duly.Ended{ID: e.task.ID, Action: duly.Acked, Result: bytes.Clone(how.Result)}
	if e.lastError = ""; how.Err != nil {
		e.failed(how.Err)
		ended = duly.Ended{ID: e.task.ID, Action: duly.Repeated, Err: duly.Why(e.lastError)}
	}
	e.failures, e.progress = 0, nil
	s.move(e, Due, time.UnixMicro(how.At.UnixMicro()))
	s.ended(ended)
}

// cut removes a task whose run was cancelled, or was to be the last.
func (s *Source) cut(e *entry, now time.Time) {
	s.move(e, Missing, now)
	s.ended(duly.Ended{ID: e.task.ID, Action: duly.Cancelled})
}
