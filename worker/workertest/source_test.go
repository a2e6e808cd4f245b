package workertest_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
	"github.com/dulyhq/duly/worker/workertest"
)

func task(id string) duly.Task { return duly.Task{ID: id, Kind: "kind"} }

// add enqueues tasks into a source.
func add(t *testing.T, src *workertest.Source, in time.Duration, tasks ...duly.Task) {
	t.Helper()
	_, err := src.EnqueueMany(t.Context(), tasks, workertest.In(in))
	must(t, err)
}

func TestAdvanceMakesTasksDue(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	before := src.Now()
	add(t, src, time.Hour, task("a"))
	src.Advance(time.Hour)
	if passed := src.Now().Sub(before); passed < time.Hour || passed > time.Hour+time.Minute {
		t.Errorf("the clock moved by %v", passed)
	}
	ds, _, err := src.Pop(t.Context(), 10, time.Minute)
	must(t, err)
	if len(ds) != 1 || ds[0].ID != "a" {
		t.Errorf("popped %v", ds)
	}
	defer func() {
		if recover() == nil {
			t.Error("Advance by a negative time does not panic")
		}
	}()
	src.Advance(-1)
}

func TestFailFailsEveryCallAndChangesNothing(t *testing.T) {
	t.Parallel()
	src, down := workertest.NewSource("orders"), errors.New("connection refused")
	add(t, src, 0, task("a"), task("b"))
	ds, _, err := src.Pop(t.Context(), 1, time.Hour)
	must(t, err)
	calls := map[string]func(context.Context) error{
		"Enqueue":    func(ctx context.Context) error { _, err := src.Enqueue(ctx, task("c")); return err },
		"Pop":        func(ctx context.Context) error { _, _, err := src.Pop(ctx, 1, time.Hour); return err },
		"Extend":     func(ctx context.Context) error { _, _, err := src.Extend(ctx, ds, time.Hour); return err },
		"Settle":     func(ctx context.Context) error { _, err := src.Settle(ctx, settlements(ds, duly.Acked)); return err },
		"Cancel":     func(ctx context.Context) error { _, err := src.Cancel(ctx, "b"); return err },
		"Reschedule": func(ctx context.Context) error { _, err := src.Reschedule(ctx, "b", workertest.In(0)); return err },
		"Revive":     func(ctx context.Context) error { _, err := src.Revive(ctx, "b"); return err },
		"Get":        func(ctx context.Context) error { _, err := src.Get(ctx, "b"); return err },
		"Peek":       func(ctx context.Context) error { _, err := src.Peek(ctx, 1); return err },
		"Stats":      func(ctx context.Context) error { _, err := src.Stats(ctx); return err },
	}
	calls["CancelRunning"] = func(ctx context.Context) error { _, err := src.CancelRunning(ctx, "a"); return err }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range calls {
		src.Fail(down)
		if err := call(t.Context()); !errors.Is(err, down) {
			t.Errorf("%s: got error %v, want %v", name, err, down)
		}
		src.Fail(nil)
		if err := call(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got error %v, want %v", name, err, context.Canceled)
		}
	}
	workertest.RequireState(t, src, "a", workertest.Leased)
	workertest.RequireDue(t, src, "b", 0)
	workertest.RequireState(t, src, "c", workertest.Missing)
}

func wantInvalid(t *testing.T, errs map[string]error) {
	t.Helper()
	for name, err := range errs {
		if !errors.Is(err, worker.ErrInvalid) {
			t.Errorf("%s: got error %v, want one that matches %q", name, err, worker.ErrInvalid)
		}
	}
}

func TestBadTasksAreRefused(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	enqueue := func(task duly.Task, opts ...workertest.EnqueueOption) error {
		_, err := src.EnqueueMany(t.Context(), []duly.Task{{Kind: "kind"}, task}, opts...)
		return err
	}
	headers := make(map[string]string)
	for i := range 65 {
		headers[strings.Repeat("h", i)] = ""
	}
	wantInvalid(t, map[string]error{
		"task with an error":   enqueue(duly.Kind[func()]{Name: "kind"}.Task(nil)),
		"no kind":              enqueue(duly.Task{ID: "a"}),
		"long kind":            enqueue(duly.Task{Kind: strings.Repeat("k", 201)}),
		"long ID":              enqueue(task(strings.Repeat("a", 513))),
		"ID with a newline":    enqueue(task("a\n")),
		"ID that is no UTF-8":  enqueue(task("\xff")),
		"lock key with braces": enqueue(duly.Task{Kind: "kind", LockKey: "{a}"}),
		"large payload":        enqueue(duly.Task{Kind: "kind", Payload: make([]byte, 1<<20+1)}),
		"many headers":         enqueue(duly.Task{Kind: "kind", Headers: headers}),
		"negative MaxAttempts": enqueue(duly.Task{Kind: "kind", MaxAttempts: -1}),
		"negative Timeout":     enqueue(duly.Task{Kind: "kind", Timeout: -1}),
		"Every without ID":     enqueue(duly.Task{Kind: "kind", Every: "@hourly"}),
		"Retain with Every":    enqueue(duly.Task{ID: "a", Kind: "kind", Every: "@hourly", Retain: 1}),
		"endless delay":        enqueue(task("a"), workertest.In(math.MaxInt64)),
		"year 2256":            enqueue(task("a"), workertest.At(time.Date(2256, 1, 1, 0, 0, 0, 0, time.UTC))),
		"two due times":        enqueue(task("a"), workertest.In(time.Hour), workertest.At(time.Time{})),
		"unknown conflict":     enqueue(task("a"), workertest.OnConflict("hide")),
		"nil option":           enqueue(task("a"), nil),
	})
	workertest.RequireNone(t, src) // nor was the good one taken
}

func TestBadCallsAreRefused(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	ctx := t.Context()
	pop := func(n int, lease time.Duration) error {
		_, _, err := src.Pop(ctx, n, lease)
		return err
	}
	settle := func(how duly.Settlement) error {
		_, err := src.Settle(ctx, []duly.Settlement{how})
		return err
	}
	list := func(state workertest.State, offset, limit int) error {
		_, err := src.List(ctx, state, offset, limit)
		return err
	}
	d := &duly.Delivery{Task: task("a")}
	_, _, extendNil := src.Extend(ctx, []*duly.Delivery{nil}, time.Second)
	_, _, extendShort := src.Extend(ctx, nil, time.Millisecond)
	_, noTime := src.Reschedule(ctx, "a", workertest.OnConflict(workertest.Keep))
	wantInvalid(t, map[string]error{
		"no place in a batch": pop(0, time.Second),
		"large batch":         pop(1001, time.Second),
		"short lease":         pop(1, time.Millisecond),
		"long lease":          pop(1, 25*time.Hour),
		"short extension":     extendShort,
		"extend nothing":      extendNil,
		"settle nothing":      settle(duly.Settlement{Action: duly.Acked}),
		"unknown action":      settle(duly.Settlement{Delivery: d, Action: "hide"}),
		"negative delay":      settle(duly.Settlement{Delivery: d, Action: duly.Retried, In: -1}),
		"no time":             noTime,
		"unknown state":       list("hidden", 0, 1),
		"negative offset":     list(workertest.Due, -1, 1),
		"large page":          list(workertest.Due, 0, 1001),
	})
}

func TestTasksAreCopied(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	mine := duly.Task{ID: "a", Kind: "kind", Payload: []byte("42"), Headers: map[string]string{"trace": "1"}}
	add(t, src, 0, mine)
	spoil := func(task duly.Task) { task.Payload[0], task.Headers["trace"] = 'x', "2" }
	spoil(mine)
	spoil(workertest.RequireDue(t, src, "a", 0).Task)
	ds, _, err := src.Pop(t.Context(), 1, time.Hour)
	must(t, err)
	spoil(ds[0].Task)
	got := workertest.RequireState(t, src, "a", workertest.Leased)
	if string(got.Payload) != "42" || got.Headers["trace"] != "1" {
		t.Errorf("the task became %+v", got.Task)
	}
}

func TestIDsAreMinted(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	receipts, err := src.EnqueueMany(t.Context(), []duly.Task{{Kind: "kind"}, {Kind: "kind"}})
	must(t, err)
	if receipts[0].ID == "" || receipts[0].ID >= receipts[1].ID {
		t.Errorf("minted %q and %q", receipts[0].ID, receipts[1].ID)
	}
}

// TestWorkerRunsSource is what a bubble is for: a worker runs a task at its due
// time, and retries it after the backoff, while the test sleeps.
func TestWorkerRunsSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src, start := workertest.NewSource("orders"), time.Now()
		var ran []time.Duration
		h := duly.HandlerFunc(func(_ context.Context, d *duly.Delivery) error {
			ran = append(ran, time.Since(start))
			if d.Attempt == 1 {
				return duly.RetryIn(time.Minute, errors.New("boom"))
			}
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.New(h, worker.Config{Logger: zaptest.NewLogger(t)}, src).Run(ctx) }()
		synctest.Wait()
		add(t, src, 15*time.Minute, task("a"))
		time.Sleep(time.Hour)
		workertest.RequireNone(t, src)
		if len(ran) != 2 || ran[0] != 15*time.Minute || ran[1] != 16*time.Minute {
			t.Errorf("ran after %v, want after 15m and 16m", ran)
		}
		stop()
		must(t, <-ended)
	})
}

// TestAdvanceWakesWorker: a worker outside a bubble follows the source's clock.
func TestAdvanceWakesWorker(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	ran := make(chan string, 1)
	h := duly.HandlerFunc(func(_ context.Context, d *duly.Delivery) error {
		ran <- d.ID
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.New(h, worker.Config{}, src).Run(ctx) }()
	add(t, src, 15*time.Minute, task("a"))
	src.Advance(15 * time.Minute)
	if id := <-ran; id != "a" {
		t.Errorf("task %q ran", id)
	}
	stop()
	must(t, <-ended)
	workertest.RequireNone(t, src)
}
