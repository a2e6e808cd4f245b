package duly

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrNotFound means that there is no task of this ID to wait for: it was never
// there, or it ended before the call and was not kept.
var ErrNotFound = errors.New("no such task")

// ErrCrashed is why a task ended that was buried because its leases ran out too
// often: its workers died or hung.
var ErrCrashed = errors.New("its workers crashed too often")

// Cancelled is how a task ended that was cancelled, before or while it ran, or
// removed. It stands in an [Ended] only: no [Settlement] may ask for it.
const Cancelled Action = "cancel"

// An Ended tells one who waited for a task how it ended.
type Ended struct {
	// ID is the task's.
	ID string

	// Action is what ended it: Acked, which means that it is done, Dropped, Buried
	// or Cancelled; or Repeated if the run of a recurring task was not done.
	Action Action

	// Result is what a task that is done has brought, as JSON, or nil.
	Result []byte

	// Err is why the task was dropped, buried or repeated, as far as that is known.
	// It matches [ErrExpired], [ErrSkipped] or [ErrCrashed] if it was that; else it
	// has the text of the handler's error, cut at 1,024 bytes, and matches nothing.
	Err error
}

// Decode decodes the result of a task that is done. It leaves v alone if there is
// none. If the task ended in another way the error says so and wraps Err.
func (e Ended) Decode(v any) error {
	switch {
	case e.Action != Acked && e.Err != nil:
		return fmt.Errorf("duly: task %q ended by %s: %w", e.ID, e.Action, e.Err)
	case e.Action != Acked:
		return fmt.Errorf("duly: task %q ended by %s", e.ID, e.Action)
	case e.Result == nil:
		return nil
	}
	if err := json.Unmarshal(e.Result, v); err != nil {
		return fmt.Errorf("duly: result of task %q: %w", e.ID, err)
	}
	return nil
}

// Why is the Err of an [Ended], read from the text of a failure that was kept with
// the task: ErrExpired if the text begins with that of it, ErrSkipped if it is that
// of it, nil for "", else an error that has the text and matches nothing. It is for
// those who implement a source; ErrCrashed is theirs to tell.
func Why(text string) error {
	switch {
	case text == "":
		return nil
	case strings.HasPrefix(text, ErrExpired.Error()):
		return ErrExpired
	case text == ErrSkipped.Error():
		return ErrSkipped
	}
	return errors.New(text)
}
