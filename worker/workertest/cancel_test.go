package workertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
	"github.com/dulyhq/duly/worker/workertest"
)

func TestRunDueEndsARunThatIsCancelled(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		answer error
		action duly.Action
	}{
		"error":  {boom, duly.Dropped},
		"Bury":   {duly.Bury(boom), duly.Dropped},
		"Snooze": {duly.Snooze(0), duly.Dropped},
		"nil":    {nil, duly.Acked},
	} {
		for _, every := range []string{"", "@hourly"} { // of what recurs it was the last
			t.Run(name+every, func(t *testing.T) {
				t.Parallel()
				src := workertest.NewSource("orders")
				a := task("a")
				a.Every = every
				add(t, src, 0, a, task("b"))
				runs, err := workertest.RunDue(t.Context(), src, handler(func(ctx context.Context, d *duly.Delivery) error {
					if d.ID == "b" {
						return ctx.Err() // the one before does not count for it
					}
					state, err := src.CancelRunning(ctx, "a")
					must(t, err)
					if cause := context.Cause(ctx); state != workertest.Leased || !errors.Is(cause, duly.ErrCancelled) {
						t.Errorf("it was %s, and its context has ended with %v", state, cause)
					}
					return c.answer
				}))
				must(t, err)
				if len(runs) != 2 || runs[0].Action != c.action || !errors.Is(runs[0].Err, c.answer) || runs[1].Action != duly.Acked {
					t.Fatalf("got %+v, want %s", runs, c.action)
				}
				if c.answer != nil && !errors.Is(runs[0].Err, duly.ErrCancelled) {
					t.Errorf("the error is %v", runs[0].Err)
				}
				workertest.RequireState(t, src, "a", workertest.Missing)
			})
		}
	}
}

func TestRunDueDoesNotRunWhatAHandlerCancels(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	add(t, src, 0, task("a"), task("b"))
	runs, err := workertest.RunDue(t.Context(), src, handler(func(ctx context.Context, _ *duly.Delivery) error {
		state, err := src.CancelRunning(ctx, "b")
		must(t, err)
		if state != workertest.Due || ctx.Err() != nil {
			t.Errorf("b is %s, the context of a: %v", state, ctx.Err())
		}
		return nil
	}))
	must(t, err)
	if len(runs) != 1 || runs[0].Delivery.ID != "a" {
		t.Errorf("ran %+v", runs)
	}
	workertest.RequireNone(t, src)
}

// A queue tells by a message, which comes when it does.
func TestRunDueEndsARunOfAQueueThatIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, err := queue.New(redistest.Virtual(t)(), "orders", queue.Config{})
		must(t, err)
		_, err = q.Enqueue(t.Context(), task("a"))
		must(t, err)
		runs, err := workertest.RunDue(t.Context(), q, handler(func(ctx context.Context, _ *duly.Delivery) error {
			_, err := q.CancelRunning(context.WithoutCancel(ctx), "a") // the message may come before the reply
			must(t, err)
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		must(t, err)
		if len(runs) != 1 || runs[0].Action != duly.Dropped || !errors.Is(runs[0].Err, duly.ErrCancelled) {
			t.Errorf("got %+v", runs)
		}
	})
}

// A worker on a source in memory is told before CancelRunning returns.
func TestCancelRunningHasEndedTheContextWhenItReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src, began := workertest.NewSource("orders"), make(chan context.Context, 1)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- worker.New(handler(func(ctx context.Context, _ *duly.Delivery) error {
				began <- ctx
				<-ctx.Done()
				time.Sleep(time.Minute)
				return ctx.Err()
			}), worker.Config{Logger: zap.NewNop()}, src).Run(ctx)
		}()
		add(t, src, 0, task("a"))
		running := <-began
		synctest.Wait() // the worker listens
		_, err := src.CancelRunning(t.Context(), "a")
		must(t, err)
		if cause := context.Cause(running); !errors.Is(cause, duly.ErrCancelled) {
			t.Errorf("the context ended with %v", cause)
		}
		workertest.RequireState(t, src, "a", workertest.Leased)
		time.Sleep(time.Minute)
		synctest.Wait()
		workertest.RequireState(t, src, "a", workertest.Missing)
		stop()
		must(t, <-ended)
	})
}
