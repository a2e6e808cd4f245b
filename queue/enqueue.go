package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dulyhq/duly"
)

// errNotSent marks the tasks of EnqueueMany behind one that failed.
var errNotSent = errors.New("queue: not sent, for an earlier task failed")

// An Outcome is what Enqueue did.
type Outcome string

// The outcomes.
const (
	Added    Outcome = "added"    // the task is new, or one of this ID was done
	Kept     Outcome = "kept"     // a task of this ID is there, and stays as it is
	Replaced Outcome = "replaced" // the task took the place of one of this ID
)

// A Receipt answers an Enqueue. That the ID was there already is an answer, not
// an error.
type Receipt struct {
	// ID is the task's, also if it was left to the queue, and also after an
	// error: with it the same task can be enqueued again.
	ID string

	// Outcome is what was done, empty after an error.
	Outcome Outcome

	// State is where a task of this ID stood before: Missing, Due, Leased, Dead,
	// or Done: of the kept one nothing is left then.
	State State

	// Due is when the task of this ID that now waits may run, by the server's
	// clock. It is zero for a task that was kept leased or dead.
	Due time.Time

	// Err is why this task of an EnqueueMany was not taken.
	Err error
}

// A Conflict says what Enqueue does if the ID is in the queue.
type Conflict string

// What to do about an ID that is in the queue.
const (
	// Keep leaves the task that is there, in whatever state it is, and answers
	// with that state. The default.
	Keep Conflict = "keep"

	// Replace puts the new task, payload and due time, in the place of the one
	// there; its failures are forgotten. A dead one is replaced as well. A
	// running one goes on, and is replaced when it settles, however it does.
	Replace Conflict = "replace"

	// Earliest lets the task win that is due earlier. Against a dead one the new
	// task wins. Against a running one the contest is over what runs next.
	Earliest Conflict = "earliest"
)

// An EnqueueOption says when a task is due, or what to do about a duplicate.
type EnqueueOption func(*enqueueOptions)

type enqueueOptions struct {
	when     int64 // µs: a time if positive, else a delay, negated
	timed    bool  // when was given
	conflict Conflict
	err      error
}

// In makes a task due after d, counted from the server's now. Zero, a negative
// d, and no option at all, are now. At most 200 years.
func In(d time.Duration) EnqueueOption {
	return func(o *enqueueOptions) { o.time(delay(d)) }
}

// At makes a task due at t, as the caller's clock tells it, to the µs. The zero
// time and the past are the server's now. At most the year 2255.
func At(t time.Time) EnqueueOption {
	return func(o *enqueueOptions) { o.time(moment(t)) }
}

// OnConflict says what to do if the ID is in the queue. Default: Keep.
func OnConflict(c Conflict) EnqueueOption {
	return func(o *enqueueOptions) { o.conflict = c }
}

// time takes when a task is due, which is said once.
func (o *enqueueOptions) time(when int64, err error) {
	if o.timed {
		err = fmt.Errorf("%w: two of In and At", ErrInvalid)
	}
	o.when, o.err, o.timed = when, err, true
}

func delay(d time.Duration) (int64, error) {
	if d > MaxDelay {
		return 0, fmt.Errorf("%w: delay %v is over %v", ErrInvalid, d, MaxDelay)
	}
	return -max(d.Microseconds(), 0), nil
}

func moment(t time.Time) (int64, error) {
	if t.Year() > 2255 || t.UnixMicro() > MaxDue {
		return 0, fmt.Errorf("%w: due time %v is after the year 2255", ErrInvalid, t)
	}
	if t.Year() < 1970 {
		return 0, nil
	}
	return max(t.UnixMicro(), 0), nil
}

func enqueueOptionsOf(opts []EnqueueOption) (enqueueOptions, error) {
	o := enqueueOptions{conflict: Keep}
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: nil option", ErrInvalid)
		}
		if opt(&o); o.err != nil {
			return o, o.err
		}
	}
	switch o.conflict {
	case Keep, Replace, Earliest:
		return o, nil
	}
	return o, fmt.Errorf("%w: OnConflict %q", ErrInvalid, o.conflict)
}

// Enqueue adds a task, due now unless [In] or [At] says otherwise. Once it
// returns without an error the task will run at least once, or end visibly, or
// be dropped when it has expired if it asks for that.
// After [ErrUnknownOutcome] it may be there or not: enqueue it again, with the
// receipt's ID if it had none.
//
// Calls through one Queue value share round trips: a call leaves at once if none
// is under way, and together with others once that is back or has taken 100 ms, or
// they are 64 or fill a trip. Two trips are under way at most, unless one takes that long.
// Each has its own receipt and error, and waits no longer than its own ctx.
func (q *Queue) Enqueue(ctx context.Context, task duly.Task, opts ...EnqueueOption) (Receipt, error) {
	o, err := enqueueOptionsOf(opts)
	if err != nil {
		return Receipt{ID: task.ID}, fmt.Errorf("queue: enqueue to %q: %w", q.name, err)
	}
	parcels, err := q.pack([]duly.Task{task}, &o)
	if err != nil {
		return Receipt{ID: task.ID}, err
	}
	p := &parcels[0]
	id := p.id
	if err := q.coalescer.enqueue(ctx, p); err != nil {
		return Receipt{ID: id}, fmt.Errorf("queue: enqueue to %q: %w", q.name, err)
	}
	return p.receipt, nil
}

// EnqueueMany adds tasks in their order, 500 a round trip at most, and
// returns a receipt for each. If one of them is invalid, none is sent and there
// are no receipts. After any other error each receipt tells its own: those
// without Err have been taken.
func (q *Queue) EnqueueMany(ctx context.Context, tasks []duly.Task, opts ...EnqueueOption) ([]Receipt, error) {
	o, err := enqueueOptionsOf(opts)
	if err != nil {
		return nil, fmt.Errorf("queue: enqueue to %q: %w", q.name, err)
	}
	parcels, err := q.pack(tasks, &o)
	if err != nil {
		return nil, err
	}
	b := newBatch(len(parcels))
	for i := 0; i < len(parcels) && err == nil; i++ {
		if !b.takes(&parcels[i]) {
			err = q.send(ctx, b.parcels)
			b = newBatch(len(parcels) - i)
		}
		b.add(&parcels[i])
	}
	if err == nil && len(parcels) > 0 {
		err = q.send(ctx, b.parcels)
	}
	receipts := make([]Receipt, len(parcels))
	for i := range parcels {
		receipts[i] = parcels[i].answer()
	}
	if err != nil {
		return receipts, fmt.Errorf("queue: enqueue to %q: %w", q.name, err)
	}
	return receipts, nil
}

// microTime reads µs since 1970; what is no number is the zero time.
func microTime(digits string) time.Time {
	us, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
