package worker_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// What is wrong is said before anything is popped, with the field's name.
func TestRunRefusesBadSettings(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // so that what is taken after all ends at once
	q := []worker.Source{newFake("q")}
	for name, c := range map[string]struct {
		handler duly.Handler
		cfg     worker.Config
		sources []worker.Source
		says    string
	}{
		"Concurrency under 1":      {done, worker.Config{Concurrency: -1}, q, "Concurrency -1 is not between 1 and 10000"},
		"Concurrency too high":     {done, worker.Config{Concurrency: 10_001}, q, "Concurrency 10001"},
		"Lease too short":          {done, worker.Config{Lease: 100*time.Millisecond - 1}, q, "Lease 99.999999ms is not between 100ms and 24h"},
		"Lease negative":           {done, worker.Config{Lease: -time.Second}, q, "Lease -1s"},
		"Lease too long":           {done, worker.Config{Lease: 24*time.Hour + 1}, q, "Lease 24h0m0.000000001s"},
		"MaxAttempts under 1":      {done, worker.Config{MaxAttempts: -1}, q, "MaxAttempts -1 is under 1"},
		"CancelTimeout negative":   {done, worker.Config{CancelTimeout: -1}, q, "CancelTimeout -1ns is negative"},
		"UnknownDelay negative":    {done, worker.Config{UnknownDelay: -1}, q, "UnknownDelay -1ns is negative"},
		"weight of nothing":        {done, worker.Config{Weights: map[string]int{"z": 1}}, q, `Weights for "z", which is no source`},
		"strict weights":           {done, worker.Config{Strict: true, Weights: map[string]int{"q": 1}}, q, `Weights of sources that are Strict`},
		"weight zero":              {done, worker.Config{Weights: map[string]int{"q": 0}}, q, `Weights["q"] = 0 is not between 1 and 1000`},
		"weight too high":          {done, worker.Config{Weights: map[string]int{"q": 1001}}, q, `Weights["q"] = 1001`},
		"limit of a kind":          {done, worker.Config{KindLimits: map[string]int{"k": 0}}, q, `KindLimits["k"] = 0 is under 1`},
		"no source":                {done, worker.Config{}, nil, "no source"},
		"nil source":               {done, worker.Config{}, []worker.Source{nil}, "nil source"},
		"two sources of one name":  {done, worker.Config{}, []worker.Source{newFake("q"), newFake("q")}, `two sources named "q"`},
		"no handler":               {nil, worker.Config{}, q, "nil handler"},
		"handler of a nil pointer": {(*duly.Mux)(nil), worker.Config{}, q, "nil handler"},
		"handler of a nil func":    {duly.HandlerFunc(nil), worker.Config{}, q, "nil handler"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := worker.New(c.handler, c.cfg, c.sources...).Run(ctx)
			if !errors.Is(err, worker.ErrInvalid) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "worker: ") {
				t.Errorf("got %v, want ErrInvalid with %q", err, c.says)
			}
		})
	}
}

// The bounds themselves are within bounds.
func TestRunTakesGoodSettings(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]worker.Config{
		"least": {
			Concurrency: 1, Lease: 100 * time.Millisecond, Timeout: -1, MaxAttempts: 1, DrainTimeout: -1,
			CancelTimeout: 1, UnknownDelay: 1, Weights: map[string]int{"q": 1}, KindLimits: map[string]int{"k": 1},
		},
		"greatest": {
			Concurrency: 10_000, Lease: 24 * time.Hour, Timeout: math.MaxInt64, MaxAttempts: math.MaxInt, DrainTimeout: math.MaxInt64,
			CancelTimeout: math.MaxInt64, UnknownDelay: math.MaxInt64, Weights: map[string]int{"q": 1000}, KindLimits: map[string]int{"k": math.MaxInt},
		},
		"none": {},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.addMany(100)
				w := launch(t, done, cfg, f)
				pass(time.Minute)
				w.stop()
				if f.left() != 0 {
					t.Errorf("%d tasks are left", f.left())
				}
			})
		})
	}
}

// The zero value runs 10 at once, under leases of 15 s.
func TestDefaults(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.addMany(30)
		w := launch(t, work(time.Hour), worker.Config{Timeout: -1, DrainTimeout: 2 * time.Hour}, f)
		pass(time.Second)
		if n := w.Stats().Running; n != 10 {
			t.Errorf("%d handlers run, want 10", n)
		}
		f.mu.Lock()
		left := time.Until(f.tasks["q-000000"].until)
		f.mu.Unlock()
		within(t, "the lease lasts", left, 14*time.Second, 14*time.Second)
	})
}

// Handlers see the values of the context of Run, but not its end.
func TestHandlersContextDescendsFromRuns(t *testing.T) {
	t.Parallel()
	type key struct{}
	f := newFake("q")
	f.add("a", 0)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "here"))
	err := worker.New(handler(func(ctx context.Context, _ *duly.Delivery) error {
		cancel()
		if ctx.Value(key{}) != "here" || ctx.Err() != nil {
			t.Errorf("value %v, error %v", ctx.Value(key{}), ctx.Err())
		}
		return nil
	}), worker.Config{}, f).Run(ctx)
	must(t, err)
	if f.left() != 0 {
		t.Error("the task is left")
	}
}
