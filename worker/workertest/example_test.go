package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

type cancelArgs struct{ OrderID string }

var cancelOrder = duly.Kind[cancelArgs]{
	Name: "order.cancel",
	ID:   func(a cancelArgs) string { return "cancel:" + a.OrderID },
}

// A shop asks for no more than it needs to enqueue; in the program this is a
// queue, in a test a source.
type shop struct {
	later func(ctx context.Context, task duly.Task, in time.Duration) error
	paid  map[string]bool
}

func (s *shop) order(ctx context.Context, id string) error {
	return s.later(ctx, cancelOrder.Task(cancelArgs{id}), 15*time.Minute)
}

func (s *shop) cancelIfUnpaid(_ context.Context, a cancelArgs, _ *duly.Delivery) error {
	if !s.paid[a.OrderID] {
		fmt.Println("cancelled", a.OrderID)
	}
	return nil
}

// A handler is tested from the enqueueing to the run, fifteen minutes later.
func Example() {
	ctx := context.Background()
	src := workertest.NewSource("orders")
	s := &shop{paid: map[string]bool{"42": true}}
	s.later = func(ctx context.Context, task duly.Task, in time.Duration) error {
		_, err := src.Enqueue(ctx, task, workertest.In(in))
		return err
	}
	mux := duly.NewMux()
	cancelOrder.Handle(mux, s.cancelIfUnpaid)

	for _, id := range []string{"41", "42"} {
		if err := s.order(ctx, id); err != nil {
			fmt.Println(err)
		}
	}
	runs, err := workertest.RunDue(ctx, src, mux)
	fmt.Println(len(runs), "runs,", err)

	src.Advance(15 * time.Minute)
	runs, err = workertest.RunDue(ctx, src, mux)
	fmt.Println(len(runs), "runs,", err)
	// Output:
	// 0 runs, <nil>
	// cancelled 41
	// 2 runs, <nil>
}

// RunDue tells what became of each attempt; advancing the clock brings the next.
func ExampleRunDue() {
	ctx := context.Background()
	src := workertest.NewSource("orders")
	mux := duly.NewMux()
	mux.HandleFunc("charge", func(_ context.Context, d *duly.Delivery) error {
		if d.Attempt < 3 {
			return errors.New("card declined")
		}
		return nil
	})
	if _, err := src.Enqueue(ctx, duly.Task{ID: "42", Kind: "charge"}); err != nil {
		fmt.Println(err)
	}
	for range 3 {
		runs, err := workertest.RunDue(ctx, src, mux)
		if err != nil {
			fmt.Println(err)
		}
		for _, run := range runs {
			fmt.Println(run.Delivery.ID, "attempt", run.Delivery.Attempt, run.Action, "in", run.In, run.Err)
			src.Advance(run.In)
		}
	}
	// Output:
	// 42 attempt 1 retry in 1s card declined
	// 42 attempt 2 retry in 2s card declined
	// 42 attempt 3 ack in 0s <nil>
}

// A handler that must hold against a superseded attempt can be shown one: the
// lease of the first runs out, and its settlement is lost.
func ExampleSource_Pop() {
	ctx := context.Background()
	src := workertest.NewSource("orders")
	if _, err := src.Enqueue(ctx, duly.Task{ID: "42", Kind: "ship"}); err != nil {
		fmt.Println(err)
	}
	first, _, _ := src.Pop(ctx, 1, 15*time.Second)
	src.Advance(15 * time.Second)
	second, _, _ := src.Pop(ctx, 1, 15*time.Second)
	fmt.Println("crashes:", second[0].Crashes, "fence is higher:", second[0].Fence > first[0].Fence)

	lost, err := src.Settle(ctx, []duly.Settlement{{Delivery: first[0], Action: duly.Acked}})
	fmt.Println("lost:", len(lost), err)
	// Output:
	// crashes: 1 fence is higher: true
	// lost: 1 <nil>
}

// What is enqueued twice is kept once.
func ExampleSource_Enqueue() {
	ctx := context.Background()
	src := workertest.NewSource("orders")
	for range 2 {
		receipt, err := src.Enqueue(ctx, cancelOrder.Task(cancelArgs{"42"}), workertest.In(15*time.Minute))
		fmt.Println(receipt.ID, receipt.Outcome, err)
	}
	state, err := src.Cancel(ctx, "cancel:42")
	fmt.Println("was", state, err)
	// Output:
	// cancel:42 added <nil>
	// cancel:42 kept <nil>
	// was due <nil>
}
