package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// A deaf handler works on, whatever its context says.
type deaf struct {
	began   atomic.Int64
	release chan struct{}
}

func (d *deaf) HandleTask(context.Context, *duly.Delivery) error {
	d.began.Add(1)
	<-d.release
	return nil
}

func TestDrainLetsHandlersFinish(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, h := newFake("q"), watch(12*time.Second)
		f.add("a", 0)
		w := launch(t, h, worker.Config{}, f)
		pass(2 * time.Second)
		began := time.Now()
		w.stop()
		within(t, "Run returned after", time.Since(began), 10*time.Second, 10*time.Second)
		if h.cause != nil {
			t.Errorf("its context ended: %v", h.cause)
		}
		if ends := f.ends(); len(ends) != 1 || ends[0].Action != duly.Acked {
			t.Errorf("settled %+v, want one ack", ends)
		}
	})
}

// Nothing is popped once the context has ended, and a pop on its way brings
// nothing that is kept.
func TestDrainStopsPopping(t *testing.T) {
	t.Parallel()
	for i := range 50 { // of which the scheduler makes different things
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &endless{fake: newFake("q")}
				f.trip = time.Millisecond
				var stopped atomic.Bool
				f.before = on("pop", func(context.Context) error {
					if stopped.Load() {
						t.Error("a pop after the context ended")
					}
					return nil
				})
				w := launch(t, work(time.Millisecond), worker.Config{Concurrency: 4}, f)
				pass(40*time.Millisecond + time.Duration(i)*100*time.Microsecond)
				ended := time.Now()
				w.cancel()
				stopped.Store(true)
				w.stop()
				within(t, "Run returned after", time.Since(ended), 0, 10*time.Millisecond)
				if n := f.leased(); n != 0 {
					t.Errorf("%d tasks are still leased", n)
				}
			})
		})
	}
}

func TestRunWithEndedContext(t *testing.T) {
	t.Parallel()
	for range 50 {
		t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake("q")
				f.addMany(10)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				must(t, worker.New(done, worker.Config{}, f).Run(ctx))
				if n := len(f.told("pop")); n > 0 {
					t.Errorf("%d pops under a context that had ended", n)
				}
			})
		})
	}
}

// What was fetched and not begun is given back with its own due time, and at
// once: it does not wait for those that run.
func TestDrainGivesBackWhatHasNotBegun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.trip = time.Millisecond
		f.addMany(3000)
		w := launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			if j.add(d); d.ID == "q-001000" {
				time.Sleep(10 * time.Second)
			}
			return nil
		}), worker.Config{Concurrency: 1}, f)
		for w.Stats().Running == 0 || len(j.all("q-001000")) == 0 {
			pass(100 * time.Microsecond)
		}
		held := f.leased()
		w.cancel()
		pass(5 * time.Millisecond)
		if f.leased() != 1 {
			t.Errorf("%d leased before the end, %d after it; want many, then the one that runs", held, f.leased())
		}
		w.stop()
		released := 0
		for _, end := range f.ends() {
			if end.Action == duly.Released {
				released++
				if end.In != 0 {
					t.Errorf("%s was put off by %v", end.Delivery.ID, end.In)
				}
			}
		}
		if released < 3 || f.leased() != 0 {
			t.Errorf("%d were given back, %d are leased", released, f.leased())
		}
	})
}

// A pop that is on its way when the context ends may lease tasks. They are given
// back, whether its reply comes in time or is given up.
func TestPopOnItsWayIsNotLost(t *testing.T) {
	t.Parallel()
	for name, trip := range map[string]time.Duration{"quick": 10 * time.Millisecond, "slow": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f, j := newFake("q"), new(journal)
				f.trip = trip
				w := launch(t, handler(j.note), worker.Config{}, f)
				pass(2 * trip)
				f.addMany(5)
				pass(trip * 6 / 10) // the pop has taken effect, its reply is on its way
				if f.leased() == 0 {
					t.Fatal("no pop is on its way")
				}
				w.stop()
				if len(j.all()) != 0 || f.leased() != 0 || len(f.ends()) != 5 {
					t.Errorf("%d ran, %d are leased, settled %+v", len(j.all()), f.leased(), f.ends())
				}
			})
		})
	}
}

// When its drain time is over a handler is told so, and what it then answers
// counts, but an error burns no attempt.
func TestDrainTimeoutStopsHandlers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer error
		want   duly.Action
	}{
		"an error":       {errBoom, duly.Released},
		"done":           {nil, duly.Acked},
		"RetryIn counts": {duly.RetryIn(time.Second, errBoom), duly.Retried},
		"Bury counts":    {duly.Bury(errBoom), duly.Buried},
		"Snooze":         {duly.Snooze(time.Minute), duly.Released},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.addTask(duly.Task{ID: "a", Kind: "k", MaxAttempts: 1 + len(name)}, 0)
				w := launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
					<-ctx.Done()
					wants(t, context.Cause(ctx), duly.ErrStopping)
					return c.answer
				}), worker.Config{DrainTimeout: 7 * time.Second}, f)
				pass(time.Second)
				began := time.Now()
				w.stop()
				within(t, "Run returned after", time.Since(began), 7*time.Second, 7*time.Second)
				ends := f.ends()
				if len(ends) != 1 || ends[0].Action != c.want {
					t.Fatalf("settled %+v, want %s", ends, c.want)
				}
				if name == "an error" && (ends[0].In != 0 || f.tasks["a"].failures != 0) {
					t.Errorf("settled %+v", ends[0])
				}
			})
		})
	}
}

func TestDrainTimeouts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  worker.Config
		want time.Duration
	}{
		"20 s by default": {worker.Config{}, 20 * time.Second},
		"none":            {worker.Config{DrainTimeout: -1}, 0},
		"as told":         {worker.Config{DrainTimeout: time.Hour}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f, h := newFake("q"), watch(100*time.Hour)
				f.add("a", 0)
				c.cfg.Timeout = -1
				w := launch(t, h, c.cfg, f)
				pass(time.Second)
				began := time.Now()
				w.stop()
				within(t, "Run returned after", time.Since(began), c.want, c.want)
				wants(t, h.cause, duly.ErrStopping)
			})
		})
	}
}

// A handler that ignores its context is given up and said to be stuck. Its task
// is not given back, for it still runs: its lease has to run out.
func TestStuckHandlerIsReportedAndNotReleased(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, h := newFake("q"), &deaf{release: make(chan struct{})}
		defer close(h.release)
		f.addMany(3)
		logger, logs := observe()
		w := launchAny(t, h, worker.Config{Concurrency: 2, Logger: logger}, f)
		pass(time.Second)
		began := time.Now()
		w.stop()
		within(t, "Run returned after", time.Since(began), 25*time.Second, 25*time.Second)
		if w.err == nil || w.err.Error() != "worker: 2 handlers did not return within 25s" {
			t.Errorf("Run returned %v", w.err)
		}
		if s := w.Stats(); s.Stuck != 2 || s.Released+s.Acked+s.Retried != 0 {
			t.Errorf("counted %+v, want 2 stuck", s)
		}
		if logs.FilterMessage("handlers did not return").Len() != 1 {
			t.Errorf("logged %v", logs.All())
		}
		if len(f.ends()) != 0 || f.leased() != 2 {
			t.Errorf("settled %+v, %d leased; want 2 left to their leases", f.ends(), f.leased())
		}
		pass(time.Minute)
		if calls := f.told("extend"); calls[len(calls)-1].at.After(began.Add(25*time.Second)) || f.leased() != 0 {
			t.Errorf("%d leases are kept for handlers that were given up", f.leased())
		}
	})
}

// A worker may run more than once at a time. What is stuck in one Run is not the
// other's.
func TestStuckIsCountedByRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, h := newFake("q"), &deaf{release: make(chan struct{})}
		w := launch(t, h, worker.Config{Concurrency: 1, DrainTimeout: time.Second}, f)
		f.add("a", 0)
		pass(time.Second)
		other := start(t, w.Worker) // finds nothing to do
		pass(time.Second)
		other.stop()
		if other.err != nil || w.Stats().Stuck != 0 {
			t.Errorf("the Run without a task returned %v", other.err)
		}
		close(h.release)
	})
}
