package queue

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Cancel removes the task of an ID if it is due, and returns the state that it
// found: Due means that the task is gone and will not run. Leased means that it
// is running and goes on; a replacement that waits for its end is removed. If it
// recurs this is its last run: it is gone when that settles or its lease runs out,
// however it ends. Dead, Done and Missing tasks are left alone. After an error cancel
// again.
func (q *Queue) Cancel(ctx context.Context, id string) (State, error) {
	for last := ""; ; {
		word, record, err := q.cancel(ctx, id, "", last)
		if err != nil {
			return "", fmt.Errorf("queue: cancel %.512q in %q: %w", id, q.name, err)
		}
		task, _ := decodeRecord(id, record) // what does not decode does not recur
		if task.Every == "" || record == last {
			return State(word), nil
		}
		last = record // another one only if it was replaced and popped in between
	}
}

// CancelRunning is [Queue.Cancel] that also cancels a run. Of a Leased task the
// worker is told, wherever it is: the handler's context ends with
// [duly.ErrCancelled], within milliseconds, or at the next extension of the lease
// if the message is lost. However the run then ends, the task is gone: it is not
// retried, not buried and, if it recurs, not repeated. An acknowledgement stands, as
// the task was done; and so does the run of a recurring one that was done. If the
// worker has died, the task is gone when its lease has run out.
//
// What is cancelled is the run that is found, never one to come. Until it has
// ended the ID is there: an Enqueue that keeps is answered [Kept] and Leased, one
// that replaces waits for the end and then runs. To cancel again is harmless, and
// to be done after [ErrUnknownOutcome], which a handler gets that cancels its own
// run with its own ctx, if the message is there before the reply.
func (q *Queue) CancelRunning(ctx context.Context, id string) (State, error) {
	word, _, err := q.cancel(ctx, id, "", "run")
	if err != nil {
		return "", fmt.Errorf("queue: cancel running %.512q in %q: %w", id, q.name, err)
	}
	return State(word), nil
}

// Remove removes the task of an ID if it is still due at the given time, as
// [Queue.Peek] or a receipt told it, and reports whether it did. It leaves a
// task alone that has been enqueued again or rescheduled since.
func (q *Queue) Remove(ctx context.Context, id string, due time.Time) (bool, error) {
	word, _, err := q.cancel(ctx, id, strconv.FormatInt(due.UnixMicro(), 10), "")
	if err != nil {
		return false, fmt.Errorf("queue: remove %.512q from %q: %w", id, q.name, err)
	}
	return word == string(Due), nil
}

// cancel returns the state found, and the record of a task that runs on.
func (q *Queue) cancel(ctx context.Context, id, due, also string) (state, record string, err error) {
	if err := checkText("task ID", id, MaxID); err != nil {
		return "", "", err
	}
	got, err := q.run(ctx, cancelScript, q.keys.forCancel(), id, due, also)
	answer, _ := got.([]any)
	return reply(answer).text(0), reply(answer).text(1), err
}

// Reschedule makes a due task due at another time: one option, [In] or [At]. It
// returns the state that it found: Due means that the task was moved. Of a
// Leased task the replacement is moved, if there is one; Dead, Done and Missing
// ones are left alone.
func (q *Queue) Reschedule(ctx context.Context, id string, when EnqueueOption) (State, error) {
	got, err := q.reschedule(ctx, id, when)
	if err != nil {
		return "", fmt.Errorf("queue: reschedule %.512q in %q: %w", id, q.name, err)
	}
	word, _ := got.(string)
	return State(word), nil
}

func (q *Queue) reschedule(ctx context.Context, id string, when EnqueueOption) (any, error) {
	if err := checkText("task ID", id, MaxID); err != nil {
		return nil, err
	}
	o, err := enqueueOptionsOf([]EnqueueOption{when})
	if err != nil {
		return nil, err
	}
	if !o.timed {
		return nil, fmt.Errorf("%w: neither In nor At", ErrInvalid)
	}
	return q.run(ctx, rescheduleScript, q.keys.forReschedule(), id, o.when)
}
