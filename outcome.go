package duly

import (
	"errors"
	"fmt"
	"time"
)

// An Action is what settling does to a delivered task.
type Action string

// The actions.
const (
	Acked    Action = "ack"     // the task is done and leaves the queue
	Dropped  Action = "drop"    // the task leaves the queue without being done
	Retried  Action = "retry"   // the attempt failed; the task is due again later
	Released Action = "release" // the task is given back; no attempt is burned
	Buried   Action = "bury"    // the task goes to the dead letter
	Repeated Action = "repeat"  // this run is over; the task is due again at a time, as new
)

// A Settlement is the end of one delivery: what becomes of its task.
type Settlement struct {
	Delivery *Delivery
	Action   Action

	// In is when a retried or released task is due again, counted from the
	// server's now. Zero is at once for a retry; a task released with zero
	// keeps its own due time, and with it its place.
	In time.Duration

	// At is when a repeated task is due again, by the server's clock. Its failures
	// and crashes are forgotten then.
	At time.Time

	// Err is why the task was retried or buried, or what its last run came to if
	// it was repeated without having been done; its text is kept with the task,
	// cut at 1,024 bytes. Those who wait for a task also learn why it was dropped.
	Err error

	// Result is what an acknowledged task has brought, or the run of a repeated one
	// that was done, JSON of at most MaxResult bytes; those who wait for the task get
	// it. That of any other is not kept.
	Result []byte
}

// ErrExpired is why a task was buried that could not start by its Expires.
var ErrExpired = errors.New("duly: task expired")

// About recurring tasks.
var (
	// ErrSkipped is what a run came to that could not start within its Grace.
	ErrSkipped = errors.New("duly: skipped, too late")

	// ErrDead means that a recurring task is in the dead letter: it does not run
	// until it is revived or replaced.
	ErrDead = errors.New("duly: task is dead")
)

// Expired reports whether it is too late for the task by now, a time of the
// server's clock, and how the delivery is to be settled then.
func (d *Delivery) Expired(now time.Time) (Settlement, bool) {
	if d.Expires.IsZero() || !now.After(d.Expires) {
		return Settlement{}, false
	}
	action := Buried
	if d.OnExpiry == Dropped {
		action = Dropped
	}
	return Settlement{Delivery: d, Action: action, Err: ErrExpired}, true
}

// outcome is the error by which a handler asks for something else than the
// default.
type outcome struct {
	action Action
	in     time.Duration
	err    error
}

func (o *outcome) Error() string {
	what := string(o.action)
	if o.in > 0 {
		what += " in " + o.in.String()
	}
	if o.err == nil {
		return "duly: " + what
	}
	return fmt.Sprintf("duly: %s: %v", what, o.err)
}

func (o *outcome) Unwrap() error { return o.err }

// RetryIn says that the attempt failed and the task is to be retried after d,
// whatever the backoff would be. It counts as an attempt: the last one buries.
// A negative d is zero.
func RetryIn(d time.Duration, err error) error {
	return &outcome{action: Retried, in: max(d, 0), err: err}
}

// Snooze says that it is too early: the task is due again after d and no
// attempt is burned. A d of zero or less puts it back at its own due time.
func Snooze(d time.Duration) error {
	return &outcome{action: Released, in: max(d, 0)}
}

// Bury says that retrying is pointless: the task goes to the dead letter now,
// where it can be inspected, revived and purged.
func Bury(err error) error {
	return &outcome{action: Buried, err: err}
}

// Drop says that the task is to be forgotten though it was not done.
func Drop(err error) error {
	return &outcome{action: Dropped, err: err}
}

// Outcome reads the answer of a handler: what it asks for, found through any
// wrapping, and after which delay. An error that asks for nothing in particular
// is Retried with ok = false: the delay is the caller's to choose.
func Outcome(err error) (action Action, in time.Duration, ok bool) {
	if err == nil {
		return Acked, 0, true
	}
	var o *outcome
	if errors.As(err, &o) {
		return o.action, o.in, true
	}
	return Retried, 0, false
}
