package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// cancelRunning cancels a run that is under way.
func cancelRunning(t *testing.T, q *queue.Queue, id string) {
	t.Helper()
	state, err := q.CancelRunning(t.Context(), id)
	must(t, err)
	if state != queue.Leased {
		t.Errorf("%s is %s, want it to run", id, state)
	}
}

// Whatever the handler answers once it was cancelled, its task is gone. That it was
// done is believed.
func TestACancelledRunIsDroppedUnlessItWasDone(t *testing.T) {
	t.Parallel()
	for name, c := range outcomes {
		for _, every := range []string{"", "@every 1m"} { // of what recurs it was the last
			t.Run(name+every, func(t *testing.T) {
				virtual(t, func(t *testing.T) { cancelledRun(t, c.answer, every, name == "nil") })
			})
		}
	}
}

// cancelledRun cancels a run whose handler then answers.
func cancelledRun(t *testing.T, answer handler, every string, done bool) {
	q, ran := openQueue(t, "orders"), 0
	logger, logs := observe()
	w := launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
		ran++
		<-ctx.Done()
		wants(t, context.Cause(ctx), duly.ErrCancelled)
		return answer(ctx, d)
	}), worker.Config{Concurrency: 1, Logger: logger}, q)
	_, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k", MaxAttempts: 1, Every: every})
	must(t, err)
	pass(time.Second)
	cancelRunning(t, q, "a")
	pass(0)
	info, err := q.Get(t.Context(), "a")
	must(t, err)
	if info.State != queue.Missing {
		t.Errorf("at once the task is %s, want it gone", info.State)
	}
	pass(time.Hour)
	stats, err := q.Stats(t.Context())
	must(t, err)
	want, told := worker.Stats{Dropped: 1, Cancelled: 1}, 1
	if done {
		want, told = worker.Stats{Acked: 1}, 0
	}
	got := w.Stats()
	if got.Panics = 0; got != want || ran != 1 || stats.Due+stats.Leased+stats.Dead != 0 {
		t.Errorf("%d runs, counted %+v, want one and %+v; left %+v", ran, got, want, stats)
	}
	if stats.Counters["cancelled"] != want.Cancelled || stats.Counters["ack"] != want.Acked {
		t.Errorf("the queue counted %v", stats.Counters)
	}
	lines := logs.FilterMessage("task cancelled").Len() + logs.FilterMessage("handler panicked").Len()
	if lines != told || logs.FilterLevelExact(zap.WarnLevel).Len() > 0 || logs.FilterMessage("task failed").Len() > 0 {
		t.Errorf("logged %v", logs.All())
	}
}

// A cancellation can come before the pop's reply: what it brings is not begun, and
// nobody waits for an extension to tell.
func TestARunThatIsCancelledBeforeItBeginsIsNotBegun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.trip = time.Second
		var once sync.Once
		f.after = on("pop", func(context.Context) error {
			if f.leased() > 0 {
				once.Do(func() { f.cancel("a") })
			}
			return nil
		})
		f.add("a", 0)
		f.add("b", 0)
		w := launch(t, handler(j.note), worker.Config{Concurrency: 2}, f)
		pass(3 * time.Second)
		ends := f.ends("a")
		if len(ends) != 1 || ends[0].Action != duly.Dropped || len(j.all("a")) != 0 || len(j.all("b")) != 1 {
			t.Errorf("settled %+v, ran %+v", ends, j.all())
		}
		if s := w.Stats(); s.Cancelled != 1 || s.Acked != 1 || f.left() != 0 {
			t.Errorf("counted %+v, %d are left", s, f.left())
		}
	})
}

// Those fetched ahead that have not begun when they are cancelled never do.
func TestWhatIsCancelledInTheBacklogIsNotRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.trip = time.Millisecond
		f.addMany(1200)
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			if j.add(d); d.ID == "q-001000" {
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		}), worker.Config{Concurrency: 1}, f)
		for len(j.all("q-001000")) == 0 {
			pass(100 * time.Microsecond)
		}
		waiting := slices.DeleteFunc(f.out(), func(id string) bool { return len(j.all(id)) > 0 })
		for _, id := range waiting {
			f.cancel(id)
		}
		pass(time.Second)
		if len(waiting) == 0 || len(j.all()) != 1200-len(waiting) || f.left() != 0 {
			t.Errorf("%d were cancelled, %d ran, %d are left", len(waiting), len(j.all()), f.left())
		}
		for _, id := range waiting {
			if len(j.all(id)) > 0 {
				t.Errorf("%s was run", id)
			}
		}
	})
}

// A hardOfHearing is a queue whose messages are lost.
type hardOfHearing struct{ *queue.Queue }

func (hardOfHearing) Watch(ctx context.Context, _ func(time.Duration), _ func(string, uint64)) {
	<-ctx.Done()
}

func TestACancellationWhoseMessageIsLostIsToldWithinAThirdOfTheLease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, h := openQueue(t, "orders"), watch(time.Hour)
		_, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k"})
		must(t, err)
		launch(t, h, worker.Config{Lease: 15 * time.Second}, hardOfHearing{q})
		pass(7 * time.Second)
		cancelled := time.Now()
		cancelRunning(t, q, "a")
		<-h.ends
		wants(t, h.cause, duly.ErrCancelled)
		within(t, "the context ended after", h.stopped.Sub(cancelled), time.Second, 5*time.Second)
		pass(0)
		if info, err := q.Get(t.Context(), "a"); err != nil || info.State != queue.Missing {
			t.Errorf("the task is %s: %v", info.State, err)
		}
	})
}

// A message may come late: the ID has been done and runs anew.
func TestALateMessageEndsNoLaterRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.add("a", 0)
		launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
			j.add(d)
			select {
			case <-ctx.Done():
				t.Errorf("run %d ended: %v", d.Fence, context.Cause(ctx))
			case <-time.After(time.Minute):
			}
			return nil
		}), worker.Config{}, f)
		pass(time.Second)
		first := j.all("a")[0].Fence
		pass(2 * time.Minute)
		f.add("a", 0)
		pass(time.Second)
		f.cancels[0]("a", first)
		f.cancels[0]("b", first+100)
		pass(2 * time.Minute)
		if ends := f.ends(); len(ends) != 2 || ends[1].Action != duly.Acked {
			t.Errorf("settled %+v, want two acks", ends)
		}
	})
}

// A handler that does not look keeps its slot and its lease for as long as it runs.
func TestACancelledHandlerThatIgnoresItsContextKeepsItsSlotAndItsLease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "orders"), new(journal)
		for _, id := range []string{"a", "b"} {
			_, err := q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "k"})
			must(t, err)
		}
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			if j.add(d); d.ID == "b" {
				return nil
			}
			time.Sleep(time.Minute)
			return errBoom
		}), worker.Config{Concurrency: 1, Lease: 15 * time.Second}, q)
		pass(time.Second)
		cancelRunning(t, q, "a")
		for range 58 {
			pass(time.Second)
			if info, err := q.Get(t.Context(), "a"); err != nil || info.State != queue.Leased || len(j.all()) != 1 {
				t.Fatalf("a is %s, %d ran: %v", info.State, len(j.all()), err)
			}
		}
		pass(2 * time.Second)
		stats, err := q.Stats(t.Context())
		must(t, err)
		if runs := j.all(); len(runs) != 2 || runs[1].ID != "b" || stats.Counters["cancelled"] != 1 || stats.Due+stats.Leased+stats.Dead != 0 {
			t.Errorf("runs %+v, left %+v", runs, stats)
		}
	})
}

func TestADrainIsCutShortByCancelling(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, h := openQueue(t, "orders"), watch(time.Hour)
		_, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k"})
		must(t, err)
		w := launch(t, h, worker.Config{}, q)
		pass(6 * time.Second)
		w.cancel()
		pass(time.Second)
		cancelRunning(t, q, "a")
		pass(0)
		select {
		case <-w.ended:
		default:
			t.Error("Run goes on")
		}
		wants(t, h.cause, duly.ErrCancelled)
		if s := w.Stats(); s.Dropped != 1 || s.Released != 0 {
			t.Errorf("counted %+v", s)
		}
	})
}

// On a real Redis: the subscription is cut just before, so the message is lost.
func TestACancellationIsToldThoughTheSubscriptionWasCut(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	q, err := queue.New(client, "orders", queue.Config{})
	must(t, err)
	h := watch(time.Minute)
	_, err = q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k"})
	must(t, err)
	w := launch(t, h, worker.Config{Lease: 600 * time.Millisecond}, q)
	eventually(t, "it runs", 10*time.Second, func() bool { return w.Stats().Running == 1 })
	subscribers := func() int64 {
		n, err := client.PubSubNumSub(t.Context(), "duly:{orders}:wake").Result()
		must(t, err)
		return n["duly:{orders}:wake"]
	}
	eventually(t, "the worker listens", 10*time.Second, func() bool { return subscribers() == 1 })
	must(t, client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	if subscribers() != 0 {
		t.Fatal("somebody listens")
	}
	cancelled := time.Now()
	cancelRunning(t, q, "a")
	<-h.ends
	t.Logf("told after %v with a lease of 600 ms", h.stopped.Sub(cancelled).Round(time.Millisecond))
	wants(t, h.cause, duly.ErrCancelled)
	eventually(t, "the task is gone", 10*time.Second, func() bool {
		info, err := q.Get(t.Context(), "a")
		must(t, err)
		return info.State == queue.Missing
	})
}

// The time from the call of CancelRunning to the end of the handler's context, on a
// real Redis. It is told and not judged, for machines differ.
func TestHowLongACancellationTakesToReachAHandler(t *testing.T) {
	t.Parallel()
	q, err := queue.New(redistest.Start(t).Client(), "orders", queue.Config{})
	must(t, err)
	began, ended := make(chan string, 1), make(chan time.Time, 1)
	launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
		began <- d.ID
		<-ctx.Done()
		ended <- time.Now()
		wants(t, context.Cause(ctx), duly.ErrCancelled)
		return ctx.Err()
	}), worker.Config{Concurrency: 1}, q)
	var took []time.Duration
	for i := range 300 {
		_, err := q.Enqueue(t.Context(), duly.Task{ID: fmt.Sprint(i), Kind: "k"})
		must(t, err)
		id := <-began
		called := time.Now()
		cancelRunning(t, q, id)
		took = append(took, (<-ended).Sub(called))
	}
	slices.Sort(took)
	t.Logf("%d cancellations on %d CPUs: median %v, 99 %% within %v, the longest %v", len(took), runtime.NumCPU(),
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}
