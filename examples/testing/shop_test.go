package shop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	shop "github.com/dulyhq/duly/examples/testing"
	"github.com/dulyhq/duly/worker"
	"github.com/dulyhq/duly/worker/workertest"
)

// open returns a shop whose tasks wait in memory. Its bank knows no payments.
func open() (*shop.Shop, *workertest.Source) {
	src := workertest.NewSource("orders")
	return &shop.Shop{
		Later: func(ctx context.Context, task duly.Task, in time.Duration) error {
			_, err := src.Enqueue(ctx, task, workertest.In(in))
			return err
		},
		Bank:   func(context.Context, string) (bool, error) { return false, nil },
		Orders: make(map[string]string), Fences: make(map[string]uint64),
	}, src
}

// First: what is enqueued, and when is it due? RequireDue knows.
func TestOrderIsToBeCancelledIn15Minutes(t *testing.T) {
	s, src := open()
	must(t, s.Order(t.Context(), "42"))
	workertest.RequireDue(t, src, "cancel:42", 15*time.Minute)
}

// Second: what does the handler do? The source's clock is moved, and RunDue runs
// what is due then. Nobody waits for fifteen minutes.
func TestUnpaidOrderIsCancelled(t *testing.T) {
	s, src := open()
	must(t, s.Order(t.Context(), "42"))

	src.Advance(14 * time.Minute)
	run(t, src, s, 0)
	src.Advance(time.Minute)
	run(t, src, s, 1)
	if got := s.Orders["42"]; got != "cancelled" {
		t.Errorf("the order is %s", got)
	}
	workertest.RequireNone(t, src) // and nothing is left behind
}

// Third: what if something fails? A settlement tells what becomes of the task and
// when it comes again.
func TestBankThatIsAwayIsAskedAgain(t *testing.T) {
	s, src := open()
	must(t, s.Order(t.Context(), "42"))
	s.Bank = func(context.Context, string) (bool, error) { return false, errors.New("bank: no answer") }

	src.Advance(shop.PayWithin)
	failed := run(t, src, s, 1)[0]
	if failed.Action != duly.Retried || s.Orders["42"] != "open" {
		t.Fatalf("the attempt ends in %s, the order is %s", failed.Action, s.Orders["42"])
	}

	s.Bank = func(context.Context, string) (bool, error) { return true, nil }
	src.Advance(failed.In)
	run(t, src, s, 1)
	if got := s.Orders["42"]; got != "paid" {
		t.Errorf("the order is %s", got)
	}
}

// Fourth: what if a worker is paused in the middle, and another does its work? By
// hand: the first takes the task and loses its lease, the second runs it, and then
// the first goes on.
func TestWorkerThatWasPausedIsTooLate(t *testing.T) {
	s, src := open()
	must(t, s.Order(t.Context(), "42"))
	src.Advance(shop.PayWithin)

	paused, _, err := src.Pop(t.Context(), 1, 15*time.Second)
	must(t, err)
	src.Advance(15 * time.Second)
	run(t, src, s, 1)

	s.Bank = func(context.Context, string) (bool, error) { return true, nil }
	err = s.Handler().HandleTask(t.Context(), paused[0])
	if !errors.Is(err, shop.ErrTooLate) || s.Orders["42"] != "cancelled" {
		t.Errorf("got %v, the order is %s", err, s.Orders["42"])
	}
}

// Fifth: what do two tasks of one order do? They share its lock key, so the second
// is parked until the first has settled.
func TestTasksOfOneOrderRunOneAtATime(t *testing.T) {
	_, src := open()
	for _, id := range []string{"first", "second"} {
		_, err := src.Enqueue(t.Context(), duly.Task{ID: id, Kind: "order.check", LockKey: "order:42"})
		must(t, err)
		src.Advance(time.Second)
	}
	ds, _, err := src.Pop(t.Context(), 10, time.Minute)
	must(t, err)
	workertest.RequireState(t, src, "second", workertest.Parked)

	_, err = src.Settle(t.Context(), []duly.Settlement{{Delivery: ds[0], Action: duly.Acked}})
	must(t, err)
	next, _, err := src.Pop(t.Context(), 10, time.Minute)
	must(t, err)
	if len(next) != 1 || next[0].ID != "second" {
		t.Errorf("popped %v, want the second", next)
	}
}

// Last: the whole of it, with a worker, as it runs in production. In a bubble of
// testing/synctest an hour passes at once.
func TestWorkerCancelsUnpaidOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, src := open()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- worker.New(s.Handler(), worker.Config{}, src).Run(ctx) }()
		must(t, s.Order(ctx, "42"))
		time.Sleep(time.Hour)
		stop()
		must(t, <-ended)
		if got := s.Orders["42"]; got != "cancelled" {
			t.Errorf("the order is %s", got)
		}
	})
}

// run runs what is due, which must be so many attempts.
func run(t *testing.T, src *workertest.Source, s *shop.Shop, want int) []duly.Settlement {
	t.Helper()
	runs, err := workertest.RunDue(t.Context(), src, s.Handler())
	must(t, err)
	if len(runs) != want {
		t.Fatalf("%d attempts were made, want %d", len(runs), want)
	}
	return runs
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
