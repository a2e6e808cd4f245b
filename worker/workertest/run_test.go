package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
	"github.com/dulyhq/duly/worker/workertest"
)

func handler(f func(ctx context.Context, d *duly.Delivery) error) duly.Handler {
	return duly.HandlerFunc(f)
}

func TestRunDueRunsInDueOrder(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	for i, id := range []string{"b", "c", "a"} {
		add(t, src, time.Duration(i)*time.Minute, task(id))
	}
	add(t, src, time.Hour, task("later"))
	src.Advance(10 * time.Minute)
	runs, err := workertest.RunDue(t.Context(), src, handler(func(context.Context, *duly.Delivery) error { return nil }))
	must(t, err)
	var ids []string
	for _, run := range runs {
		ids = append(ids, run.Delivery.ID)
	}
	if !slices.Equal(ids, []string{"b", "c", "a"}) {
		t.Errorf("ran %q", ids)
	}
	workertest.RequireDue(t, src, "later", 50*time.Minute)
}

func TestRunDueJudgesAsAWorkerDoes(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		answer error
		max    int
		action duly.Action
		in     time.Duration
		state  workertest.State
	}{
		"nil":              {nil, 0, duly.Acked, 0, workertest.Missing},
		"error":            {boom, 0, duly.Retried, time.Second, workertest.Due},
		"last error":       {boom, 1, duly.Buried, 0, workertest.Dead},
		"RetryIn":          {duly.RetryIn(time.Hour, boom), 0, duly.Retried, time.Hour, workertest.Due},
		"last RetryIn":     {duly.RetryIn(time.Hour, boom), 1, duly.Buried, 0, workertest.Dead},
		"Snooze":           {fmt.Errorf("closed: %w", duly.Snooze(time.Hour)), 1, duly.Released, time.Hour, workertest.Due},
		"Bury":             {duly.Bury(boom), 0, duly.Buried, 0, workertest.Dead},
		"Drop":             {duly.Drop(boom), 0, duly.Dropped, 0, workertest.Missing},
		"no handler":       {duly.ErrNoHandler, 1, duly.Released, 30 * time.Second, workertest.Due},
		"last error of 20": {boom, 20, duly.Retried, time.Second, workertest.Due},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answers := handler(func(context.Context, *duly.Delivery) error { return c.answer })
				a := task("a")
				a.MaxAttempts = c.max
				src := workertest.NewSource("orders")
				add(t, src, 0, a)
				runs, err := workertest.RunDue(t.Context(), src, answers)
				must(t, err)
				if len(runs) != 1 || runs[0].Action != c.action || runs[0].In != c.in || !errors.Is(runs[0].Err, c.answer) {
					t.Fatalf("got %+v, want %s in %v", runs, c.action, c.in)
				}
				got := workertest.RequireState(t, src, "a", c.state)

				other := workertest.NewSource("orders")
				add(t, other, 0, a)
				want := runOnce(t, other, answers)
				if c.action == duly.Retried { // the worker's backoff is random
					if want.At.After(got.At) {
						t.Errorf("the worker retries at %v, RunDue at %v", want.At, got.At)
					}
					want.At = got.At
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("RunDue leaves\n%+v, a worker\n%+v", got, want)
				}
			})
		})
	}
}

// runOnce has a worker run what is due, in a bubble, and returns what it leaves of
// task a.
func runOnce(t *testing.T, src *workertest.Source, h duly.Handler) workertest.Info {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.New(h, worker.Config{Logger: zap.NewNop()}, src).Run(ctx) }()
	synctest.Wait()
	info, err := src.Get(t.Context(), "a")
	must(t, err)
	stop()
	must(t, <-ended)
	return info
}

// TestRunDueBacksOff: advancing by what a settlement says brings the next attempt,
// until the default of 20 is reached.
func TestRunDueBacksOff(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	add(t, src, 0, task("a"))
	fails := handler(func(context.Context, *duly.Delivery) error { return errors.New("boom") })
	var total time.Duration
	for attempt := 1; attempt <= 20; attempt++ {
		runs, err := workertest.RunDue(t.Context(), src, fails)
		must(t, err)
		if len(runs) != 1 || runs[0].Delivery.Attempt != attempt {
			t.Fatalf("attempt %d: got %+v", attempt, runs)
		}
		total += runs[0].In
		src.Advance(runs[0].In)
	}
	// 1 s doubled nine times is 1023 s, then ten minutes nine times.
	if want := 1023*time.Second + 9*10*time.Minute; total != want {
		t.Errorf("backed off for %v, want %v", total, want)
	}
	if info := workertest.RequireState(t, src, "a", workertest.Dead); info.Failures != 20 || info.LastError != "boom" {
		t.Errorf("got %+v", info)
	}
}

func TestRunDueRunsWhatHandlersEnqueue(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	add(t, src, 0, task("1"))
	runs, err := workertest.RunDue(t.Context(), src, handler(func(ctx context.Context, d *duly.Delivery) error {
		if len(d.ID) == 5 {
			return nil
		}
		_, err := src.Enqueue(ctx, task(d.ID+"1"))
		return err
	}))
	must(t, err)
	if len(runs) != 5 {
		t.Errorf("%d tasks ran, want 5", len(runs))
	}
	workertest.RequireNone(t, src)
}

// TestRunDueHandsLockKeysOver: tasks of one lock key run in due order, and one that
// fails holds up none.
func TestRunDueHandsLockKeysOver(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	for i, id := range []string{"b", "c", "a"} {
		add(t, src, time.Duration(i)*time.Second, keyed(id, "order:42"))
	}
	src.Advance(time.Minute)
	var ran []string
	h := handler(func(_ context.Context, d *duly.Delivery) error {
		ran = append(ran, d.ID)
		if d.ID == "b" && d.Attempt == 1 {
			return errors.New("boom")
		}
		return nil
	})
	for range 2 {
		_, err := workertest.RunDue(t.Context(), src, h)
		must(t, err)
		src.Advance(time.Second)
	}
	if want := []string{"b", "c", "a", "b"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	workertest.RequireNone(t, src)
}

func TestRunDueTakesPanicsAsFailures(t *testing.T) {
	t.Parallel()
	src, boom := workertest.NewSource("orders"), errors.New("boom")
	add(t, src, 0, task("a"))
	runs, err := workertest.RunDue(t.Context(), src, handler(func(context.Context, *duly.Delivery) error { panic(duly.Drop(boom)) }))
	must(t, err)
	var panicked *worker.PanicError
	if len(runs) != 1 || runs[0].Action != duly.Retried || !errors.As(runs[0].Err, &panicked) || !errors.Is(runs[0].Err, boom) {
		t.Fatalf("got %+v", runs)
	}
	if !strings.Contains(string(panicked.Stack), "run_test.go") {
		t.Errorf("the stack does not show the handler:\n%s", panicked.Stack)
	}
}

func TestRunDueEndsAttemptsAtTheirTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src, start := workertest.NewSource("orders"), time.Now()
		quick := task("quick")
		quick.Timeout = 10 * time.Second
		add(t, src, 0, quick, task("usual"))
		runs, err := workertest.RunDue(t.Context(), src, handler(func(ctx context.Context, _ *duly.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		must(t, err)
		if len(runs) < 2 || !errors.Is(runs[0].Err, duly.ErrTimeout) || !errors.Is(runs[1].Err, duly.ErrTimeout) {
			t.Errorf("got %+v", runs)
		}
		if took := runs[1].Delivery.Popped.Sub(start); took != 10*time.Second {
			t.Errorf("the first attempt took %v, want 10s", took)
		}
	})
}

func TestRunDueReportsWhatWentWrong(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	for name, c := range map[string]struct {
		handle func(ctx context.Context, src *workertest.Source, cancel func()) error
		want   error
		runs   int
	}{
		"the source fails": {func(_ context.Context, src *workertest.Source, _ func()) error {
			src.Fail(down)
			return nil
		}, down, 0},
		"the context ends": {func(_ context.Context, _ *workertest.Source, cancel func()) error {
			cancel()
			return nil
		}, context.Canceled, 1},
		"the lease is lost": {func(ctx context.Context, src *workertest.Source, _ func()) error {
			src.Advance(25 * time.Hour)
			_, _, err := src.Pop(ctx, 1, time.Hour)
			return err
		}, duly.ErrLeaseLost, 0},
		"there is no end": {func(context.Context, *workertest.Source, func()) error {
			return duly.Snooze(0)
		}, workertest.ErrEndless, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := workertest.NewSource("orders")
			add(t, src, 0, task("a"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			runs, err := workertest.RunDueMost(ctx, src, handler(func(ctx context.Context, _ *duly.Delivery) error {
				return c.handle(ctx, src, cancel)
			}), 100)
			if !errors.Is(err, c.want) || len(runs) != c.runs {
				t.Errorf("got %d runs and error %v, want %d and %v", len(runs), err, c.runs, c.want)
			}
		})
	}
}

// TestRunDueEndsThoughNothingIsHeard: the subscription of a queue does not stand as
// long as its Redis is away.
func TestRunDueEndsThoughNothingIsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src, away := newFaulty(), errors.New("away")
		src.watch = func(ctx context.Context, _ func(time.Duration), _ func(string, uint64)) { <-ctx.Done() }
		src.pop = func(context.Context, int, time.Duration) ([]*duly.Delivery, time.Duration, error) {
			return nil, 0, away
		}
		began := time.Now()
		_, err := workertest.RunDue(t.Context(), src, handler(func(context.Context, *duly.Delivery) error { return nil }))
		if took := time.Since(began); !errors.Is(err, away) || took > 5*time.Second {
			t.Errorf("after %v got error %v, want one that matches %q", took, err, away)
		}
	})
}

func TestRunDueDoesNotRunWhatHasExpired(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	buried, dropped, runs := task("buried"), task("dropped"), task("runs")
	buried.Expires, dropped.Expires, runs.Expires = src.Now().Add(time.Minute), src.Now().Add(time.Minute), src.Now().Add(time.Hour)
	dropped.OnExpiry = duly.Dropped
	for _, task := range []duly.Task{buried, dropped, runs} {
		add(t, src, time.Second, task)
	}
	src.Advance(2 * time.Minute)
	done, err := workertest.RunDue(t.Context(), src, handler(func(_ context.Context, d *duly.Delivery) error {
		if d.ID != "runs" {
			t.Errorf("%s was run", d.ID)
		}
		return nil
	}))
	must(t, err)
	got := make(map[string]duly.Action)
	for _, settled := range done {
		got[settled.Delivery.ID] = settled.Action
	}
	want := map[string]duly.Action{"buried": duly.Buried, "dropped": duly.Dropped, "runs": duly.Acked}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("settled as %v, want %v", got, want)
	}
}
