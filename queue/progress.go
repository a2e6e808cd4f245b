package queue

import (
	"context"
	"fmt"

	"github.com/dulyhq/duly"
)

// Progress keeps what a delivery reports of itself: JSON of 1 to [duly.MaxResult]
// bytes, which takes the place of what was reported of its task before. It matches
// [duly.ErrLeaseLost] if the lease is no longer held; nothing has changed then. At
// Redis's memory limit it fails with [ErrFull]. Handlers call
// [duly.Delivery.Progress].
func (q *Queue) Progress(ctx context.Context, d *duly.Delivery, progress []byte) error {
	err := q.report(ctx, d, progress)
	if err != nil {
		return fmt.Errorf("queue: progress in %q: %w", q.name, err)
	}
	return nil
}

func (q *Queue) report(ctx context.Context, d *duly.Delivery, progress []byte) error {
	if d == nil || len(progress) == 0 {
		return fmt.Errorf("%w: no delivery or no progress", ErrInvalid)
	}
	if err := duly.CheckReport(progress); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	lease := members(1, func(int) *duly.Delivery { return d })[0]
	got, err := q.run(ctx, progressScript, q.keys.forProgress(), lease, d.ID, progress)
	if err == nil && got != "ok" {
		err = duly.ErrLeaseLost
	}
	return err
}
