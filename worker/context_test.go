package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// The ways to look at a context, each of which may be the first.
var looks = map[string]func(ctx context.Context) error{
	"Done": func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	},
	"a derived context": func(ctx context.Context) error {
		derived, cancel := context.WithCancel(context.WithValue(ctx, errAway, 1))
		defer cancel()
		<-derived.Done()
		return context.Cause(derived)
	},
	"Err": func(ctx context.Context) error {
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return context.Cause(ctx)
	},
	"Cause, too late": func(ctx context.Context) error {
		time.Sleep(time.Minute)
		return context.Cause(ctx)
	},
}

func TestAHandlersContextTellsItsEndHoweverItIsAsked(t *testing.T) {
	ends := map[error]func(cfg *worker.Config, f *fake){
		duly.ErrTimeout:   func(cfg *worker.Config, _ *fake) { cfg.Timeout = 2 * time.Second },
		duly.ErrLeaseLost: func(_ *worker.Config, f *fake) { f.before = on("extend", away) },
		duly.ErrStopping:  func(*worker.Config, *fake) {},
		duly.ErrCancelled: func(*worker.Config, *fake) {},
	}
	for name, look := range looks {
		for want, prepare := range ends {
			t.Run(name+": "+want.Error(), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					f := newFake("q")
					f.add("a", 0)
					cfg := worker.Config{Timeout: time.Hour, DrainTimeout: time.Second, CancelTimeout: time.Hour}
					prepare(&cfg, f)
					got := make(chan error, 100) // the task runs again
					r := launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
						got <- look(ctx)
						return nil
					}), cfg, f)
					pass(time.Second)
					if errors.Is(want, duly.ErrStopping) {
						r.cancel()
					}
					if errors.Is(want, duly.ErrCancelled) {
						f.cancel("a")
					}
					if err := <-got; !errors.Is(err, want) {
						t.Errorf("the context ended with %v, want %v", err, want)
					}
				})
			})
		}
	}
}

// A handler that looks too late finds what came first, as if it had looked.
func TestATimeoutBeforeTheDrainIsATimeout(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"timeout first": time.Second, "drain first": time.Minute} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.add("a", 0)
				r := launch(t, handler(func(context.Context, *duly.Delivery) error {
					time.Sleep(2 * time.Minute)
					return errAway
				}), worker.Config{Timeout: timeout, DrainTimeout: 5 * time.Second, CancelTimeout: time.Hour}, f)
				pass(2 * time.Second)
				r.stop()
				want := duly.Retried
				if timeout > 10*time.Second {
					want = duly.Released
				}
				if ends := f.ends(); len(ends) != 1 || ends[0].Action != want {
					t.Errorf("settled %+v, want one %s", ends, want)
				}
			})
		})
	}
}

func TestAContextThatOutlivesItsHandlerHasEnded(t *testing.T) {
	for name, early := range map[string]bool{"looked at before": true, "looked at after": false} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.add("a", 0)
				kept := make(chan context.Context, 1)
				launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
					if early && ctx.Err() != nil {
						t.Errorf("the context ended in the handler: %v", ctx.Err())
					}
					kept <- ctx
					return nil
				}), worker.Config{Timeout: time.Hour}, f)
				pass(time.Second)
				ctx := <-kept
				if err, cause := ctx.Err(), context.Cause(ctx); !errors.Is(err, context.Canceled) || !errors.Is(cause, context.Canceled) {
					t.Errorf("got %v because of %v, want both %v", err, cause, context.Canceled)
				}
				if until, ok := ctx.Deadline(); !ok || until.Before(time.Now()) {
					t.Errorf("the deadline is %v, %v", until, ok)
				}
			})
		})
	}
}
