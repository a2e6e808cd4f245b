package workertest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// Bounds that a queue has too.
const (
	maxID      = 512 // bytes, of an ID or a lock key
	maxKind    = 200 // bytes
	maxEvery   = 200 // bytes
	maxPayload = 1 << 20
	maxHeaders = 64
	maxError   = 1_024 // bytes of an error's text
	maxDelay   = 200 * 365 * 24 * time.Hour
	maxRetain  = 365 * 24 * time.Hour
)

// An Outcome is what Enqueue did.
type Outcome string

// The outcomes.
const (
	Added    Outcome = "added"    // the task is new, or one of this ID was done
	Kept     Outcome = "kept"     // a task of this ID is there, and stays as it is
	Replaced Outcome = "replaced" // the task took the place of one of this ID
)

// A Receipt answers an Enqueue: the task's ID, what was done, where a task of
// this ID stood before, and when the one that now waits is due (zero if one was
// kept leased or dead).
type Receipt struct {
	ID      string
	Outcome Outcome
	State   State
	Due     time.Time
}

// A Conflict says what Enqueue does if the ID is there.
type Conflict string

// What to do about an ID that is there.
const (
	// Keep leaves the task that is there. The default.
	Keep Conflict = "keep"

	// Replace puts the new task in the place of the one there. A running one
	// goes on, and is replaced when it settles.
	Replace Conflict = "replace"

	// Earliest lets the task win that is due earlier, and the new one against a
	// dead one.
	Earliest Conflict = "earliest"
)

// An EnqueueOption says when a task is due, once, or what to do about a duplicate.
type EnqueueOption func(*enqueueOptions)

type enqueueOptions struct {
	at       time.Time // if zero, in
	in       time.Duration
	timed    int // how many of them were given
	conflict Conflict
}

// In makes a task due after d by the source's clock. Zero, a negative d, and no
// option at all, are now. At most 200 years.
func In(d time.Duration) EnqueueOption {
	return func(o *enqueueOptions) { o.in = d; o.timed++ }
}

// At makes a task due at t, to the µs. The zero time and the past are now. At
// most the year 2255.
func At(t time.Time) EnqueueOption {
	return func(o *enqueueOptions) { o.at = t; o.timed++ }
}

// OnConflict says what to do if the ID is there. Default: Keep.
func OnConflict(c Conflict) EnqueueOption {
	return func(o *enqueueOptions) { o.conflict = c }
}

func enqueueOptionsOf(opts []EnqueueOption) (enqueueOptions, error) {
	o := enqueueOptions{conflict: Keep}
	for _, opt := range opts {
		if opt == nil {
			return o, fmt.Errorf("%w: nil option", worker.ErrInvalid)
		}
		opt(&o)
	}
	switch {
	case o.timed > 1:
		return o, fmt.Errorf("%w: two of In and At", worker.ErrInvalid)
	case o.in > maxDelay:
		return o, fmt.Errorf("%w: delay %v is over %v", worker.ErrInvalid, o.in, maxDelay)
	case o.at.Year() > 2255:
		return o, fmt.Errorf("%w: due time %v is after the year 2255", worker.ErrInvalid, o.at)
	case o.conflict != Keep && o.conflict != Replace && o.conflict != Earliest:
		return o, fmt.Errorf("%w: OnConflict %q", worker.ErrInvalid, o.conflict)
	}
	return o, nil
}

// due is the time that was asked for, and now at the earliest.
func (o *enqueueOptions) due(now time.Time) time.Time {
	due := now.Add(o.in.Truncate(time.Microsecond))
	if !o.at.IsZero() {
		due = time.UnixMicro(o.at.UnixMicro())
	}
	if due.Before(now) {
		return now
	}
	return due
}

// Enqueue adds a task, due now unless [In] or [At] says otherwise. That the ID is
// there is an answer, not an error. A task without an ID gets one that counts
// up.
func (s *Source) Enqueue(ctx context.Context, task duly.Task, opts ...EnqueueOption) (Receipt, error) {
	receipts, err := s.EnqueueMany(ctx, []duly.Task{task}, opts...)
	if err != nil {
		return Receipt{ID: task.ID}, err
	}
	return receipts[0], nil
}

// EnqueueMany adds tasks in their order and returns a receipt for each, or an
// error and takes none.
func (s *Source) EnqueueMany(ctx context.Context, tasks []duly.Task, opts ...EnqueueOption) ([]Receipt, error) {
	o, err := enqueueOptionsOf(opts)
	if err != nil {
		return nil, s.wrap("enqueue to", err)
	}
	for i := range tasks {
		if err := checkTask(&tasks[i]); err != nil {
			return nil, s.wrap("enqueue to", err)
		}
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, s.wrap("enqueue to", err)
	}
	defer end()
	now := s.now()
	receipts := make([]Receipt, len(tasks))
	for i, task := range tasks {
		receipts[i] = s.enqueue(copyOf(task), o.due(now), o.conflict)
	}
	s.hint()
	return receipts, nil
}

func (s *Source) enqueue(task duly.Task, due time.Time, mode Conflict) Receipt {
	if task.ID == "" {
		s.minted++
		task.ID = fmt.Sprintf("00000000-0000-7000-8000-%012d", s.minted)
	}
	e := s.tasks[task.ID]
	if e != nil && e.state == Done {
		s.move(e, Missing, due)
		s.move(&entry{task: task}, Due, due)
		return Receipt{task.ID, Added, Done, due}
	}
	if e == nil {
		s.move(&entry{task: task}, Due, due)
		return Receipt{task.ID, Added, Missing, due}
	}
	old := e.nextDue()
	wins := mode == Replace || mode == Earliest && (old.IsZero() || due.Before(old))
	switch {
	case !wins:
		return Receipt{task.ID, Kept, e.found(), old}
	case e.state == Leased:
		e.next, e.last = &replacement{task, due}, false
		return Receipt{task.ID, Replaced, Leased, due}
	}
	state, key := e.found(), e.task.LockKey
	e.renew(task)
	s.move(e, Due, due)
	s.yield(key)
	return Receipt{task.ID, Replaced, state, due}
}

// nextDue is when a task, or what replaces it, is due; zero if it is not to run
// again.
func (e *entry) nextDue() time.Time {
	switch {
	case e.waits():
		return e.at
	case e.next != nil:
		return e.next.due
	}
	return time.Time{}
}

// copyOf keeps what one side does to a task's bytes away from the other.
func copyOf(task duly.Task) duly.Task {
	task.Payload, task.Headers = bytes.Clone(task.Payload), maps.Clone(task.Headers)
	return task
}

func checkTask(t *duly.Task) error {
	size := len(t.Payload)
	for k, v := range t.Headers {
		size += len(k) + len(v)
	}
	switch {
	case t.Err() != nil:
		return fmt.Errorf("%w: %w", worker.ErrInvalid, t.Err())
	case t.ID != "" && !isText(t.ID, maxID):
		return fmt.Errorf("%w: task ID %q", worker.ErrInvalid, t.ID)
	case !isText(t.Kind, maxKind):
		return fmt.Errorf("%w: kind %q", worker.ErrInvalid, t.Kind)
	case t.LockKey != "" && !isText(t.LockKey, maxID) || strings.ContainsAny(t.LockKey, "{}"):
		return fmt.Errorf("%w: lock key %q", worker.ErrInvalid, t.LockKey)
	case size > maxPayload:
		return fmt.Errorf("%w: payload and headers of %d bytes, over %d", worker.ErrInvalid, size, maxPayload)
	case len(t.Headers) > maxHeaders:
		return fmt.Errorf("%w: %d headers, over %d", worker.ErrInvalid, len(t.Headers), maxHeaders)
	case t.MaxAttempts < 0 || t.Timeout < 0:
		return fmt.Errorf("%w: negative MaxAttempts %d or Timeout %v", worker.ErrInvalid, t.MaxAttempts, t.Timeout)
	case !t.Expires.IsZero() && (t.Expires.Year() < 1970 || t.Expires.Year() > 2255 || t.Expires.UnixMicro() <= 0):
		return fmt.Errorf("%w: Expires %v is not between the years 1970 and 2255", worker.ErrInvalid, t.Expires)
	case t.OnExpiry != "" && t.OnExpiry != duly.Buried && t.OnExpiry != duly.Dropped:
		return fmt.Errorf("%w: OnExpiry %q", worker.ErrInvalid, t.OnExpiry)
	case t.Grace < 0 || t.Grace > 0 && t.Every == "":
		return fmt.Errorf("%w: Grace %v is negative, or without Every", worker.ErrInvalid, t.Grace)
	case t.Every != "" && (t.ID == "" || !isText(t.Every, maxEvery)):
		return fmt.Errorf("%w: Every %q of task ID %q", worker.ErrInvalid, t.Every, t.ID)
	case t.Retain > 0 && t.Every != "":
		return fmt.Errorf("%w: Retain with Every: what recurs is never done", worker.ErrInvalid)
	case t.Retain < 0 || t.Retain > maxRetain:
		return fmt.Errorf("%w: Retain %v is not between 0 and %v", worker.ErrInvalid, t.Retain, maxRetain)
	}
	return nil
}

// isText reports whether s is text of 1 to most bytes without control characters.
func isText(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
