package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// A watched is a handler that works until its context ends or the work is done.
type watched struct {
	work    time.Duration
	ends    chan struct{} // closed when it has returned
	began   time.Time
	stopped time.Time // when the context ended
	cause   error     // why
}

func watch(work time.Duration) *watched { return &watched{work: work, ends: make(chan struct{})} }

func (w *watched) HandleTask(ctx context.Context, _ *duly.Delivery) error {
	defer close(w.ends)
	w.began = time.Now()
	select {
	case <-ctx.Done():
		w.stopped, w.cause = time.Now(), context.Cause(ctx)
		return ctx.Err()
	case <-time.After(w.work):
		return nil
	}
}

func TestLeaseIsExtendedWhileTheHandlerRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, h := newFake("q"), watch(3*time.Hour+time.Second)
		f.add("a", 0)
		launch(t, h, worker.Config{Timeout: -1}, f)
		pass(3*time.Hour + 2*time.Second)
		<-h.ends
		if h.cause != nil {
			t.Fatalf("the context ended: %v", h.cause)
		}
		extensions := f.told("extend")
		if n := len(extensions); n != int(3*time.Hour/(5*time.Second)) {
			t.Errorf("%d extensions in 3 h, want one every 5 s", n)
		}
		last := h.began
		for _, c := range extensions {
			within(t, "time between extensions", c.at.Sub(last), 5*time.Second, 5*time.Second)
			last = c.at
		}
		if ends := f.ends(); len(ends) != 1 || ends[0].Action != duly.Acked || ends[0].Delivery.Fence != 1 {
			t.Errorf("settled %+v, want one ack of the first delivery", ends)
		}
	})
}

// What is held at one time is extended by one call, and no call follows what was
// settled.
func TestLeasesAreExtendedTogether(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.addMany(50)
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			if d.ID < "q-000025" {
				time.Sleep(7 * time.Second)
			} else {
				time.Sleep(12 * time.Second)
			}
			return nil
		}), worker.Config{Concurrency: 50}, f)
		pass(time.Minute)
		extensions := f.told("extend")
		if len(extensions) != 2 || extensions[0].n != 50 || extensions[1].n != 25 {
			t.Errorf("extensions %+v, want one of 50 after 5 s and one of 25 after 10 s", extensions)
		}
	})
}

// Extensions that fail are tried again inside the lease; the handler does not
// notice.
func TestExtensionIsTriedAgainInsideTheLease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, h := newFake("q"), watch(time.Minute)
		f.add("a", 0)
		began := time.Now()
		var tries []time.Duration
		f.before = on("extend", func(context.Context) error {
			if since := time.Since(began); since < 14*time.Second {
				tries = append(tries, since)
				return errAway
			}
			return nil
		})
		launch(t, h, worker.Config{}, f)
		pass(2 * time.Minute)
		if h.cause != nil {
			t.Fatalf("the context ended after %v: %v", h.stopped.Sub(began), h.cause)
		}
		if len(tries) != 9 || tries[0] != 5*time.Second || tries[1] != 6*time.Second {
			t.Errorf("tries that failed: %v, want one a second from 5 s on", tries)
		}
		if ends := f.ends(); len(ends) != 1 || ends[0].Action != duly.Acked {
			t.Errorf("settled %+v, want one ack", ends)
		}
	})
}

const lossLease = 15 * time.Second

// Ways to lose a lease of 15 s, and when the handler must know.
var losses = map[string]struct {
	fail        func(f *fake, released <-chan struct{})
	trip        time.Duration
	least, most time.Duration // after the server's lease began
}{
	"the source says so": {
		fail:  func(f *fake, _ <-chan struct{}) { time.AfterFunc(time.Second, func() { f.steal("a") }) },
		least: 5 * time.Second, most: 5 * time.Second,
	},
	"extensions fail": {
		fail:  func(f *fake, _ <-chan struct{}) { f.before = on("extend", away) },
		least: lossLease * 98 / 100, most: lossLease - 10*time.Millisecond,
	},
	"an extension hangs for ever": {
		fail:  func(f *fake, released <-chan struct{}) { f.before = on("extend", hang(released)) },
		least: lossLease * 98 / 100, most: lossLease - 10*time.Millisecond,
	},
	"the pop took long and extensions fail": {
		fail: func(f *fake, _ <-chan struct{}) { f.before = on("extend", away) },
		trip: 6 * time.Second, least: lossLease*98/100 - 3*time.Second, most: lossLease - 3*time.Second,
	},
	"the reply to an extension is lost, then all fail": {
		fail: func(f *fake, released <-chan struct{}) {
			first := true
			f.before = on("extend", func(ctx context.Context) error {
				if first {
					first = false
					return nil
				}
				return away(ctx)
			})
			f.after = on("extend", hang(released))
		},
		least: lossLease * 98 / 100, most: lossLease - 10*time.Millisecond,
	},
}

// However a lease is lost, the handler's context ends before another can have
// it, with the cause, and nothing is settled.
func TestLostLeaseEndsTheContextFirst(t *testing.T) {
	t.Parallel()
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f, h := newFake("q"), watch(time.Hour)
				released := make(chan struct{})
				f.trip = c.trip
				c.fail(f, released)
				f.add("a", 0)
				w := launch(t, h, worker.Config{Concurrency: 1}, f)
				<-h.ends
				wants(t, h.cause, duly.ErrLeaseLost)
				popped := f.told("pop")[0].at
				within(t, "the context ended after", h.stopped.Sub(popped), c.least, c.most)
				pass(0)
				if n := len(f.ends()); n != 0 {
					t.Errorf("%d settlements of a delivery that was lost", n)
				}
				if s := w.Stats(); s.Lost != 1 || s.Retried+s.Acked+s.Released != 0 {
					t.Errorf("counted %+v, want 1 lost", s)
				}
				close(released)
				w.stop()
			})
		})
	}
}

// The slot of a task that was lost is free for the next.
func TestLostLeaseFreesItsSlot(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.before = on("extend", away)
		f.add("a", 0)
		launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
			if j.add(d); d.ID == "a" && d.Crashes == 0 {
				<-ctx.Done()
				return nil // too late
			}
			return nil
		}), worker.Config{Concurrency: 1}, f)
		pass(14 * time.Second)
		f.add("b", 0)
		pass(10 * time.Second)
		runs := j.all()
		if len(runs) != 3 || runs[1].ID != "b" || runs[2].ID != "a" || runs[2].Crashes != 1 || runs[2].Attempt != 1 {
			t.Errorf("runs %+v, want a, b, and a again", runs)
		}
		within(t, "a again after", runs[2].at.Sub(runs[0].at), 15*time.Second, 15*time.Second)
	})
}

// A delivery that arrives when its lease may be over is not begun.
func TestDeliveryThatComesTooLateIsNotBegun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.add("a", 0)
		first := true
		f.after = on("pop", func(context.Context) error {
			if len(f.told("pop")) == 1 && first {
				first = false
				time.Sleep(14900 * time.Millisecond)
			}
			return nil
		})
		w := launch(t, handler(j.note), worker.Config{}, f)
		pass(30 * time.Second)
		runs := j.all()
		if len(runs) != 1 || runs[0].Fence != 2 || w.Stats().Lost != 1 {
			t.Errorf("runs %+v, want one, of the second delivery", runs)
		}
	})
}

// An extension that comes to nothing is a sign that the source is away, also if
// it just does not answer.
func TestExtensionThatHangsIsLogged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, h := newFake("q"), watch(20*time.Second)
		f.add("a", 0)
		f.before = on("extend", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		logger, logs := observe()
		launch(t, h, worker.Config{Concurrency: 1, Logger: logger}, f)
		pass(12 * time.Second)
		if logs.FilterMessage("source does not answer, trying on").Len() != 1 {
			t.Errorf("logged %v, want that the source does not answer", logs.All())
		}
		<-h.ends
	})
}

// However many handlers run, and whenever they began, their leases are kept by a
// few calls: what is to be extended soon goes along with what is to be now.
func TestManyLeasesAreKept(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.trip = 20 * time.Millisecond
		for i := range 200 {
			f.add(fmt.Sprint(i), time.Duration(i)*43*time.Millisecond)
		}
		w := launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return nil
			}
		}), worker.Config{Concurrency: 200, Lease: 2 * time.Second}, f)
		pass(70 * time.Second)
		if s := w.Stats(); s.Acked != 200 || s.Lost != 0 {
			t.Errorf("counted %+v, want 200 acked", s)
		}
		if calls, most := len(f.told("extend")), int(70*time.Second/(200*time.Millisecond)); calls > most {
			t.Errorf("%d calls in 70 s, want at most one in a tenth of the lease: %d", calls, most)
		}
	})
}

// A cutOff is a source as a worker sees it whose machine dies after its first
// pop: no call comes through any more.
type cutOff struct {
	*fake
	popped chan struct{} // closed with the first pop
}

func (c *cutOff) dead() bool {
	select {
	case <-c.popped:
		return true
	default:
		return false
	}
}

func (c *cutOff) Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	if c.dead() {
		return nil, 0, errAway
	}
	defer close(c.popped)
	return c.fake.Pop(ctx, n, lease)
}

func (c *cutOff) Extend(context.Context, []*duly.Delivery, time.Duration) (lost, cancelled []*duly.Delivery, err error) {
	return nil, nil, errAway
}

func (c *cutOff) Settle(context.Context, []duly.Settlement) ([]*duly.Delivery, error) {
	return nil, errAway
}

// A worker that has nothing to do looks for leases that end as often as it must,
// though it went to sleep before they began and no hint tells it.
func TestIdleWorkerTakesOverWithinLeasePlus1s(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 15 * time.Second} {
		t.Run(lease.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f, j := newFake("q"), new(journal)
				f.mute = true
				launch(t, handler(j.note), worker.Config{Lease: lease}, f)
				pass(10 * time.Millisecond)
				f.add("a", 0)
				launch(t, watch(time.Hour), worker.Config{Lease: lease}, &cutOff{f, make(chan struct{})})
				popped := time.Now()
				pass(lease + time.Second)
				runs := j.all()
				if len(runs) != 1 || runs[0].Crashes != 1 {
					t.Fatalf("runs %+v, want one after the crash", runs)
				}
				within(t, "taken over after", runs[0].at.Sub(popped), lease, lease+time.Second)
			})
		})
	}
}
