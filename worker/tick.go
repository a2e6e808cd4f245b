package worker

import (
	"fmt"
	"time"

	"github.com/dulyhq/duly"
)

// SkipTick reports whether a delivery is not to be run by now, a time of the
// source's clock, because its task recurs and it is later than its Grace, or
// because its schedule cannot be read; and how it is to be settled then: repeated
// at its next tick, or buried.
func SkipTick(d *duly.Delivery, now time.Time) (duly.Settlement, bool) {
	if d.Every == "" {
		return duly.Settlement{}, false
	}
	s := duly.Settlement{Delivery: d, Action: duly.Repeated, Err: duly.ErrSkipped}
	var err error
	if s.At, err = nextAfter(d, now); err != nil {
		return duly.Settlement{Delivery: d, Action: duly.Buried, Err: err}, true
	}
	return s, d.Grace > 0 && now.Sub(d.Due) > d.Grace
}

// EndTick makes of how a delivery would be settled at now, a time of the source's
// clock, how it is if its task recurs. One that was done, buried or dropped, or
// that would be retried no sooner than its next tick, is repeated at that, without
// an error but with its result if it was done; a retry before that, and what was
// released, stay as they are. So does what does not recur. A run that was cancelled
// is for the caller to leave alone: it was the last.
func EndTick(verdict duly.Settlement, now time.Time) duly.Settlement {
	d := verdict.Delivery
	if d.Every == "" || verdict.Action == duly.Released {
		return verdict
	}
	next, err := nextAfter(d, now)
	if err != nil {
		return duly.Settlement{Delivery: d, Action: duly.Buried, Err: err}
	}
	if verdict.Action == duly.Retried && now.Add(verdict.In).Before(next) {
		return verdict
	}
	return duly.Settlement{Delivery: d, Action: duly.Repeated, At: next, Err: verdict.Err, Result: verdict.Result}
}

// nextAfter is the first tick that is after a delivery was due and after now: those
// that were missed are one.
func nextAfter(d *duly.Delivery, now time.Time) (time.Time, error) {
	if d.Due.After(now) {
		now = d.Due
	}
	next, err := NextTick(d.Every, now)
	if err != nil {
		return next, fmt.Errorf("worker: %w", err)
	}
	return next, nil
}
