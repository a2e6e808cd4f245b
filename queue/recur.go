package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/dulyhq/duly"
)

// changed is the conflict that the new task wins if it is not the same, in all
// but its due time.
const changed Conflict = "changed"

// CheckTask reports why the queue would not take a task; such an error matches
// [ErrInvalid]. Nothing is sent.
func (q *Queue) CheckTask(task duly.Task) error {
	if err := q.checkTask(&task); err != nil {
		return fmt.Errorf("queue: task %.512q for %q: %w", task.ID, q.name, err)
	}
	return nil
}

// Recur makes sure that a recurring task is in the queue, and returns when it is
// due next: the zero time if it runs now. Workers call it when they start. One
// that is not there is added, due at the first tick after the server's now, which
// first is asked for. One that is the same, in all but its due time, is kept as it
// is. If it differs it is replaced and due at its first tick; one that is overdue
// or was to be retried keeps that time, though, and one that is running is replaced
// when that ends, also if it was cancelled meanwhile.
//
// One that is in the dead letter and the same is left there, and the error matches
// [duly.ErrDead]. After any other error calling again is safe.
func (q *Queue) Recur(ctx context.Context, task duly.Task, first func(now time.Time) time.Time) (due time.Time, err error) {
	receipt, err := q.recur(ctx, task, first)
	if err == nil && receipt.Outcome == Kept && receipt.State == Dead {
		err = duly.ErrDead
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("queue: recurring task %.512q in %q: %w", task.ID, q.name, err)
	}
	return receipt.Due, nil
}

func (q *Queue) recur(ctx context.Context, task duly.Task, first func(now time.Time) time.Time) (Receipt, error) {
	o := enqueueOptions{conflict: changed}
	parcels, err := q.pack([]duly.Task{task}, &o)
	if err != nil {
		return Receipt{}, err
	}
	now, err := q.run(ctx, nowScript, q.keys.forNow())
	if err != nil {
		return Receipt{}, err
	}
	text, _ := now.(string)
	if parcels[0].when, err = moment(first(microTime(text))); err != nil {
		return Receipt{}, err
	}
	err = q.send(ctx, []*parcel{&parcels[0]})
	return parcels[0].receipt, err
}
