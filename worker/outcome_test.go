package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

var errBoom = errors.New("boom")

// angry is an error that cannot even be read: a classic is the method of a nil
// pointer.
type angry struct{ text string }

func (a *angry) Error() string { return a.text }

func answer(err error) handler {
	return func(context.Context, *duly.Delivery) error { return err }
}

// untilTimeout is a handler that takes too long.
func untilTimeout(ctx context.Context, _ *duly.Delivery) error {
	<-ctx.Done()
	return fmt.Errorf("interrupted: %w", ctx.Err())
}

// What follows from each answer of a handler, with a backoff of 7 s.
var outcomes = map[string]struct {
	answer handler
	again  time.Duration // until the second run; under zero is never
	failed bool          // the attempt is burned
	state  queue.State   // if it never runs again
	note   string        // is in the error that the queue keeps
}{
	"nil":             {answer: done, again: -1, state: queue.Missing},
	"error":           {answer: answer(errBoom), again: 7 * time.Second, failed: true, note: "boom"},
	"RetryIn":         {answer: answer(fmt.Errorf("at 42: %w", duly.RetryIn(3*time.Second, errBoom))), again: 3 * time.Second, failed: true, note: "at 42"},
	"RetryIn nothing": {answer: answer(duly.RetryIn(-time.Hour, errBoom)), again: 0, failed: true, note: "boom"},
	"Snooze":          {answer: answer(fmt.Errorf("wrapped: %w", duly.Snooze(4*time.Second))), again: 4 * time.Second},
	"Snooze nothing":  {answer: answer(duly.Snooze(0)), again: 0},
	"Bury":            {answer: answer(duly.Bury(errBoom)), again: -1, state: queue.Dead, failed: true, note: "boom"},
	"Drop":            {answer: answer(errors.Join(errBoom, duly.Drop(errBoom))), again: -1, state: queue.Missing},
	"panic": {
		answer: func(context.Context, *duly.Delivery) error { panic("oh no") },
		again:  7 * time.Second, failed: true, note: "panic: oh no",
	},
	"panic with an error": {
		answer: func(context.Context, *duly.Delivery) error { panic(errBoom) },
		again:  7 * time.Second, failed: true, note: "panic: boom",
	},
	"panic with an outcome": {
		answer: func(context.Context, *duly.Delivery) error { panic(duly.Drop(errBoom)) },
		again:  7 * time.Second, failed: true, note: "boom",
	},
	"panic with nil": {
		answer: func(context.Context, *duly.Delivery) error { panic(nil) },
		again:  7 * time.Second, failed: true, note: "panic",
	},
	"Goexit": {
		answer: func(context.Context, *duly.Delivery) error { runtime.Goexit(); return nil },
		again:  7 * time.Second, failed: true, note: "Goexit",
	},
	"error that panics": {answer: answer((*angry)(nil)), again: 7 * time.Second, failed: true, note: "panic"},
	"timeout":           {answer: untilTimeout, again: 9 * time.Second, failed: true, note: "duly: task timed out: interrupted"},
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, c := range outcomes {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				q, j := openQueue(t, "orders"), new(journal)
				first := func(ctx context.Context, d *duly.Delivery) error {
					if j.add(d); len(j.all("a")) > 1 {
						return nil
					}
					return c.answer(ctx, d)
				}
				backoff := func(int, error, *duly.Task) time.Duration { return 7 * time.Second }
				launch(t, handler(first), worker.Config{Concurrency: 1, Backoff: backoff, Timeout: 2 * time.Second}, q)
				_, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k"})
				must(t, err)
				if c.again != 0 {
					pass(cmp.Or(max(c.again, 0), 3*time.Second) - time.Millisecond)
					info, err := q.Get(t.Context(), "a")
					must(t, err)
					if c.again < 0 && info.State != c.state {
						t.Errorf("the task is %s, want %s", info.State, c.state)
					}
					if c.again < 0 && c.state == queue.Missing {
						return
					}
					if (info.Failures == 1) != c.failed || !strings.Contains(info.LastError, c.note) {
						t.Errorf("%d failures, last error %q; want one with %q: %v", info.Failures, info.LastError, c.note, c.failed)
					}
				}
				pass(time.Minute)
				runs := j.all("a")
				if c.again < 0 {
					if len(runs) != 1 {
						t.Errorf("%d runs, want 1", len(runs))
					}
					return
				}
				if len(runs) != 2 {
					t.Fatalf("%d runs, want 2", len(runs))
				}
				within(t, "time between the runs", runs[1].at.Sub(runs[0].at), c.again, c.again+time.Microsecond)
				if want := map[bool]int{false: 1, true: 2}[c.failed]; runs[1].Attempt != want {
					t.Errorf("the second run is attempt %d, want %d", runs[1].Attempt, want)
				}
				// The goroutine of a handler that ended it has been replaced.
				_, err = q.Enqueue(t.Context(), duly.Task{ID: "b", Kind: "k"})
				must(t, err)
				pass(0)
				if len(j.all("b")) != 1 {
					t.Error("the slot is lost")
				}
			})
		})
	}
}

// The last attempt buries, however it fails; what burns no attempt does not.
func TestLastAttemptBuries(t *testing.T) {
	t.Parallel()
	for name, c := range outcomes {
		if !c.failed {
			continue
		}
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				q, j := openQueue(t, "orders"), new(journal)
				each := func(ctx context.Context, d *duly.Delivery) error {
					j.add(d)
					return c.answer(ctx, d)
				}
				launch(t, handler(each), worker.Config{MaxAttempts: 50, Timeout: 2 * time.Second}, q)
				_, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k", MaxAttempts: 3})
				must(t, err)
				pass(time.Minute)
				want := 3
				if c.again < 0 {
					want = 1 // Bury does not wait for the last
				}
				info, err := q.Get(t.Context(), "a")
				must(t, err)
				if n := len(j.all()); n != want || info.State != queue.Dead || info.Failures != want {
					t.Errorf("%d runs, the task is %s after %d failures; want %d, dead", n, info.State, info.Failures, want)
				}
			})
		})
	}
}

func TestSnoozeOnTheLastAttemptBurnsNone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.addTask(duly.Task{ID: "a", Kind: "k", MaxAttempts: 1}, 0)
		launch(t, answer(duly.Snooze(time.Second)), worker.Config{}, f)
		pass(10*time.Second + 500*time.Millisecond)
		if ends := f.ends(); len(ends) != 11 || ends[10].Delivery.Attempt != 1 || ends[10].Action != duly.Released {
			t.Errorf("%d settlements, the last %+v; want 11 releases of attempt 1", len(ends), ends[len(ends)-1])
		}
	})
}

// By default a task fails 20 times, 1 s doubling to 10 min apart, at random.
func TestDefaultAttempts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.add("a", 0)
		w := launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			j.add(d)
			return errBoom
		}), worker.Config{}, f)
		pass(24 * time.Hour)
		runs := j.all()
		if len(runs) != 20 {
			t.Fatalf("%d runs, want 20", len(runs))
		}
		for i := range runs[1:] {
			most := min(time.Second<<i, 10*time.Minute)
			within(t, fmt.Sprintf("backoff %d", i+1), runs[i+1].at.Sub(runs[i].at), 0, most)
		}
		if s := w.Stats(); s.Retried != 19 || s.Buried != 1 || s.Running != 0 {
			t.Errorf("counted %+v", s)
		}
	})
}

func TestExponentialHasFullJitter(t *testing.T) {
	t.Parallel()
	backoff := worker.Exponential(time.Second, 10*time.Minute)
	for attempt := 1; attempt <= 70; attempt++ {
		most := 10 * time.Minute
		if attempt < 11 {
			most = min(time.Second<<(attempt-1), most)
		}
		const n = 2000
		least, greatest, sum := most, time.Duration(0), 0.0
		for range n {
			d := backoff(attempt, errBoom, new(duly.Task))
			if d < 0 || d > most {
				t.Fatalf("attempt %d: %v, over %v", attempt, d, most)
			}
			least, greatest, sum = min(least, d), max(greatest, d), sum+d.Seconds()
		}
		if least > most/50 || greatest < most-most/50 {
			t.Errorf("attempt %d: %v to %v, not the whole of 0 to %v", attempt, least, greatest, most)
		}
		if mean := sum / n; math.Abs(mean/most.Seconds()-0.5) > 0.05 {
			t.Errorf("attempt %d: mean %.3f s, want half of %v", attempt, mean, most)
		}
	}
	if d := worker.Exponential(time.Second, math.MaxInt64)(1000, nil, nil); d < 0 {
		t.Errorf("the longest backoff is %v", d)
	}
}

func TestExponentialRefusesBadBounds(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]time.Duration{{0, time.Second}, {-1, time.Second}, {time.Second, time.Millisecond}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Exponential(%v, %v) did not panic", c[0], c[1])
				}
			}()
			worker.Exponential(c[0], c[1])
		}()
	}
}

// A backoff of one's own sees the attempt, the error and the task. One that
// misbehaves costs neither the task nor the worker.
func TestCustomBackoff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		backoff worker.Backoff
		again   time.Duration
	}{
		"sees all": {func(attempt int, err error, task *duly.Task) time.Duration {
			if attempt == 1 && errors.Is(err, errBoom) && task.ID == "a" {
				return 3 * time.Second
			}
			return time.Hour
		}, 3 * time.Second},
		"negative":   {func(int, error, *duly.Task) time.Duration { return math.MinInt64 }, 0},
		"panics":     {func(int, error, *duly.Task) time.Duration { panic("no idea") }, time.Second},
		"ends all":   {func(int, error, *duly.Task) time.Duration { runtime.Goexit(); return 0 }, time.Second},
		"never ends": {func(int, error, *duly.Task) time.Duration { return math.MaxInt64 }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				q, j := openQueue(t, "orders"), new(journal)
				launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
					if j.add(d); d.Attempt == 1 {
						return errBoom
					}
					return nil
				}), worker.Config{Concurrency: 1, Backoff: c.backoff}, q)
				for _, id := range []string{"a", "b"} {
					_, err := q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "k"})
					must(t, err)
				}
				pass(time.Minute)
				runs := j.all("a")
				if c.again < 0 {
					if info, err := q.Get(t.Context(), "b"); err != nil || info.State != queue.Due {
						t.Errorf("a task without end is %s, error %v", info.State, err)
					}
					return
				}
				if len(runs) != 2 || len(j.all("b")) < 1 {
					t.Fatalf("%d runs, and %d of another task", len(runs), len(j.all("b")))
				}
				within(t, "backoff", runs[1].at.Sub(runs[0].at), c.again, c.again+time.Microsecond)
			})
		})
	}
}
