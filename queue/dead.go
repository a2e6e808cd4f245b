package queue

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Revive takes tasks out of the dead letter: they are due now, as if they had
// never failed. It returns how many of the IDs were there. One that has expired is
// buried again: to run it all the same, enqueue it anew with Replace.
func (q *Queue) Revive(ctx context.Context, ids ...string) (int, error) {
	for _, id := range ids {
		if err := checkText("task ID", id, MaxID); err != nil {
			return 0, fmt.Errorf("queue: revive in %q: %w", q.name, err)
		}
	}
	total := 0
	for part := range slices.Chunk(ids, MaxBatch) {
		args := make([]any, len(part))
		for i, id := range part {
			args[i] = id
		}
		got, err := q.run(ctx, reviveScript, q.keys.forRevive(), args...)
		if err != nil {
			return total, fmt.Errorf("queue: revive in %q: %w", q.name, err)
		}
		n, _ := got.(int64)
		total += int(n)
	}
	return total, nil
}

// Purge removes the tasks from the dead letter that died longer ago than age,
// by the server's clock, for good. It returns how many, also after an error.
func (q *Queue) Purge(ctx context.Context, age time.Duration) (int, error) {
	if age < 0 {
		return 0, fmt.Errorf("queue: purge %q: %w: age %v is negative", q.name, ErrInvalid, age)
	}
	for total := 0; ; {
		got, err := q.run(ctx, purgeScript, q.keys.forPurge(), age.Microseconds(), MaxBatch)
		if err != nil {
			return total, fmt.Errorf("queue: purge %q: %w", q.name, err)
		}
		n, _ := got.(int64)
		if total += int(n); n < MaxBatch {
			return total, nil
		}
	}
}
