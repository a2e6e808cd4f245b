package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dulyhq/duly"
)

// Exit statuses of wait for tasks that were not done.
var endStatus = map[duly.Action]int{duly.Dropped: 3, duly.Buried: 4, duly.Cancelled: 5, duly.Repeated: 6}

// endedError is how a task ended that was not done.
type endedError struct{ duly.Ended }

// Error quotes what the handler said, so that it cannot play tricks on a terminal.
func (e endedError) Error() string {
	text := fmt.Sprintf("task %q ended by %s", e.ID, e.Action)
	if e.Err != nil {
		text += fmt.Sprintf(": %q", e.Err.Error())
	}
	return text
}

func (e endedError) status() int { return cmp.Or(endStatus[e.Action], 1) }

// wait prints the result of a task once that has ended.
func wait(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("wait")
	timeout := flags.Duration("timeout", 0, "how long to wait at most; 0 is for ever")
	q, words, err := t.queue(flags, args, 2, 2)
	if err != nil {
		return err
	}
	if *timeout < 0 {
		return fmt.Errorf("%w: -timeout %v is negative", errUsage, *timeout)
	}
	if *timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, *timeout)
		defer stop()
	}
	ended, err := q.Wait(ctx, words[0])
	switch {
	case errors.Is(err, duly.ErrNotFound):
		return fmt.Errorf("no task %q in %q", words[0], q.Name())
	case err != nil:
		return err
	}
	if err := t.out.ended(ended); err != nil {
		return err
	}
	if ended.Action != duly.Acked {
		return endedError{ended}
	}
	return nil
}
