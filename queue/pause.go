package queue

import (
	"context"
	"fmt"
)

// Pause keeps every worker from popping, until Resume. What is running goes on. What
// pops do beside that waits as well: leases that ran out are not reclaimed, and what
// a pop had leased whose reply was lost is not delivered again.
func (q *Queue) Pause(ctx context.Context) error {
	if _, err := q.run(ctx, pauseScript, q.keys.forPause(), "1"); err != nil {
		return fmt.Errorf("queue: pause %q: %w", q.name, err)
	}
	return nil
}

// Resume ends a pause.
func (q *Queue) Resume(ctx context.Context) error {
	if _, err := q.run(ctx, pauseScript, q.keys.forPause(), ""); err != nil {
		return fmt.Errorf("queue: resume %q: %w", q.name, err)
	}
	return nil
}
