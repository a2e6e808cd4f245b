package duly_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/dulyhq/duly"
)

func TestSetResultEncodesWhatTheTaskHasBrought(t *testing.T) {
	t.Parallel()
	d := &duly.Delivery{}
	if d.Result() != nil {
		t.Errorf("a new delivery has the result %q", d.Result())
	}
	raw := json.RawMessage(`{ "a" : 1 }`)
	for want, v := range map[string]any{`{"order":"42"}`: shipArgs{"42"}, `"x"`: "x", string(raw): raw, "": nil} {
		if err := d.SetResult(v); err != nil || string(d.Result()) != want {
			t.Errorf("SetResult(%v): %v, result %q, want %q", v, err, d.Result(), want)
		}
	}
	if err := d.SetResult(strings.Repeat("x", duly.MaxResult-2)); err != nil || len(d.Result()) != duly.MaxResult {
		t.Errorf("the largest: %v, %d bytes", err, len(d.Result()))
	}
}

func TestAResultThatCannotBeSetLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	d := &duly.Delivery{}
	if err := d.SetResult(1); err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]any{"a channel": make(chan int), "broken JSON": json.RawMessage("{"), "empty JSON": json.RawMessage{}} {
		if err := d.SetResult(v); err == nil || string(d.Result()) != "1" {
			t.Errorf("%s: %v, result %q", what, err, d.Result())
		}
	}
	for _, large := range []any{strings.Repeat("x", duly.MaxResult-1), json.RawMessage(`"` + strings.Repeat("x", duly.MaxResult) + `"`)} {
		if err := d.SetResult(large); !errors.Is(err, duly.ErrResultTooLarge) || string(d.Result()) != "1" {
			t.Errorf("over the bound: %v, result of %d bytes", err, len(d.Result()))
		}
	}
}

func TestCheckReportBoundsTheSizeAlone(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]error{0: nil, duly.MaxResult: nil, duly.MaxResult + 1: duly.ErrResultTooLarge} {
		if err := duly.CheckReport(make([]byte, size)); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

// A reporter is a duly.Reporter that remembers.
type reporter struct {
	got string
	err error
}

func (r *reporter) Progress(_ context.Context, d *duly.Delivery, progress []byte) error {
	r.got = d.ID + ": " + string(progress)
	return r.err
}

func TestProgressGoesToWhereTheDeliveryCameFrom(t *testing.T) {
	t.Parallel()
	d, r := &duly.Delivery{Task: duly.Task{ID: "a"}}, &reporter{}
	if err := d.Progress(t.Context(), 1); err != nil {
		t.Errorf("without a worker: %v", err)
	}
	d.ReportTo(r)
	for want, v := range map[string]any{"a: 0.5": 0.5, `a: "half"`: "half", "a: null": nil} {
		if err := d.Progress(t.Context(), v); err != nil || r.got != want {
			t.Errorf("Progress(%v): %v, reported %q", v, err, r.got)
		}
	}
	r.err = duly.ErrLeaseLost
	if err := d.Progress(t.Context(), 1); !errors.Is(err, duly.ErrLeaseLost) {
		t.Errorf("of a lost lease: %v", err)
	}
	r.got = ""
	if err := d.Progress(t.Context(), strings.Repeat("x", duly.MaxResult)); !errors.Is(err, duly.ErrResultTooLarge) || r.got != "" {
		t.Errorf("over the bound: %v, reported %q", err, r.got)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(duly.ErrStopping)
	if err := d.Progress(ctx, 1); !errors.Is(err, duly.ErrStopping) || r.got != "" {
		t.Errorf("after the end of the context: %v, reported %q", err, r.got)
	}
}
