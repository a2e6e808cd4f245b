package duly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxResult bounds what a handler reports, its result or its progress, in bytes
// of JSON. What is larger belongs in a store, and its key in the result.
const MaxResult = 64 << 10

// ErrResultTooLarge means that a result or a progress is over [MaxResult].
var ErrResultTooLarge = errors.New("duly: result too large")

// A Reporter takes the progress of deliveries: the source that they came from.
type Reporter interface {
	// Progress keeps what a delivery reports, JSON of at most MaxResult bytes, in
	// the place of what was reported before. An error that matches ErrLeaseLost
	// means that its lease is no longer held: nothing has changed.
	Progress(ctx context.Context, d *Delivery, progress []byte) error
}

// ReportTo makes Progress report to r. It is for workers, before they call the
// handler.
func (d *Delivery) ReportTo(r Reporter) { d.reporter = r }

// SetResult sets what the task has brought, encoded as JSON; a json.RawMessage is
// taken as it is. It is recorded if the handler then returns nil: those who wait
// for the task get it, and it is kept for as long as the task's Retain says.
// The last call wins; nil is no result. After an error, which matches
// [ErrResultTooLarge] or tells what cannot be encoded, the result is what it was.
//
// It is the handler's to call, on the delivery that it was given, before it
// returns; not concurrently.
func (d *Delivery) SetResult(v any) error {
	result, err := encodeReport(v)
	if err != nil {
		return fmt.Errorf("duly: result of %q: %w", d.ID, err)
	}
	d.result = result
	return nil
}

// Result is what SetResult has set, as JSON, or nil.
func (d *Delivery) Result() []byte { return d.result }

// Progress reports how far the task is, encoded as JSON, for others to see at
// once. The latest report wins, whichever attempt made it, and goes when the task
// goes; one that is kept or dead keeps it. Every call is a round trip, so report
// what a reader can notice: a few times a second at most.
//
// An error that matches [ErrLeaseLost] means that the task runs again, perhaps
// already: stop. After any other the report was made or not, and the task is none
// the worse. Without a worker, as in a handler's own test, it does nothing. It may
// be called concurrently, until the handler returns.
func (d *Delivery) Progress(ctx context.Context, v any) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	progress, err := encodeReport(v)
	if progress == nil {
		progress = []byte("null")
	}
	if err == nil && d.reporter != nil {
		err = d.reporter.Progress(ctx, d, progress)
	}
	if err != nil {
		return fmt.Errorf("duly: progress of %q: %w", d.ID, err)
	}
	return nil
}

// encodeReport is JSON within its bounds, nil for nil.
func encodeReport(v any) ([]byte, error) {
	raw, ok := v.(json.RawMessage)
	switch {
	case v == nil || ok && raw == nil:
		return nil, nil
	case ok && !json.Valid(raw):
		return nil, errors.New("no JSON")
	case ok:
		raw = append([]byte(nil), raw...)
	default:
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	if err := CheckReport(raw); err != nil {
		return nil, err
	}
	return raw, nil
}

// CheckReport checks that a result or a progress is of at most [MaxResult] bytes;
// the error matches [ErrResultTooLarge]. It does not look whether they are JSON. It
// is for those who implement a source.
func CheckReport(report []byte) error {
	if len(report) > MaxResult {
		return fmt.Errorf("%w: %d bytes, over %d", ErrResultTooLarge, len(report), MaxResult)
	}
	return nil
}
