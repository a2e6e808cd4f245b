package worker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// CancelArgs are the arguments of order.cancel.
type CancelArgs struct{ OrderID string }

var CancelOrder = duly.Kind[CancelArgs]{
	Name: "order.cancel",
	ID:   func(a CancelArgs) string { return "cancel:" + a.OrderID },
}

// exampleQueue returns a queue on a Redis in memory.
func exampleQueue() (orders *queue.Queue, end func()) {
	mini, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	if orders, err = queue.New(rdb, "orders", queue.Config{}); err != nil {
		panic(err)
	}
	return orders, func() { _ = rdb.Close(); mini.Close() }
}

// A worker runs the tasks of a queue when they are due. Here the only task ends
// it; a program ends it by a signal.
func ExampleNew() {
	orders, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	mux := duly.NewMux()
	CancelOrder.Handle(mux, func(_ context.Context, a CancelArgs, d *duly.Delivery) error {
		fmt.Printf("order %s is cancelled, attempt %d\n", a.OrderID, d.Attempt)
		stop()
		return nil
	})
	task := CancelOrder.Task(CancelArgs{OrderID: "42"})
	if _, err := orders.Enqueue(ctx, task, queue.In(50*time.Millisecond)); err != nil {
		fmt.Println(err)
	}

	err := worker.New(mux, worker.Config{Concurrency: 64}, orders).Run(ctx)
	fmt.Println("stopped:", err)
	// Output:
	// order 42 is cancelled, attempt 1
	// stopped: <nil>
}

// When the context of Run ends, handlers may finish within the drain time. Then
// they are told to stop, which costs their tasks no attempt.
func ExampleWorker_Run() {
	orders, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	mux := duly.NewMux()
	CancelOrder.Handle(mux, func(ctx context.Context, _ CancelArgs, _ *duly.Delivery) error {
		stop()
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	})
	task := CancelOrder.Task(CancelArgs{OrderID: "42"})
	if _, err := orders.Enqueue(ctx, task); err != nil {
		fmt.Println(err)
	}

	w := worker.New(mux, worker.Config{DrainTimeout: 50 * time.Millisecond}, orders)
	fmt.Println("stopped:", w.Run(ctx))
	info, err := orders.Get(context.Background(), "cancel:42")
	fmt.Println(info.State, info.Failures, err)
	// Output:
	// duly: worker is stopping
	// stopped: <nil>
	// due 0 <nil>
}

// A run is cancelled from any process. Its handler is told why its context ends,
// and whatever error it then returns, the task is not tried again.
func Example_cancelRunning() {
	orders, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	began := make(chan struct{})
	mux := duly.NewMux()
	CancelOrder.Handle(mux, func(ctx context.Context, _ CancelArgs, _ *duly.Delivery) error {
		close(began)
		<-ctx.Done()
		fmt.Println(context.Cause(ctx))
		return ctx.Err()
	})
	task := CancelOrder.Task(CancelArgs{OrderID: "42"})
	if _, err := orders.Enqueue(ctx, task); err != nil {
		fmt.Println(err)
	}
	go func() {
		<-began
		if _, err := orders.CancelRunning(ctx, "cancel:42"); err != nil {
			fmt.Println(err)
		}
		stop()
	}()

	_ = worker.New(mux, worker.Config{Lease: 300 * time.Millisecond}, orders).Run(ctx)
	info, err := orders.Get(context.Background(), "cancel:42")
	fmt.Println(info.State, err)
	// Output:
	// duly: task cancelled
	// missing <nil>
}

// A mistake in the settings is reported when the worker is to run.
func ExampleWorker_Run_invalid() {
	err := worker.New(duly.NewMux(), worker.Config{Concurrency: -1}).Run(context.Background())
	fmt.Println(errors.Is(err, worker.ErrInvalid), err)
	// Output:
	// true worker: invalid argument: Concurrency -1 is not between 1 and 10000
}

// A backoff of one's own, for tasks of which some are urgent.
func ExampleBackoff() {
	slow := worker.Exponential(time.Minute, time.Hour)
	backoff := worker.Backoff(func(attempt int, err error, task *duly.Task) time.Duration {
		if task.Headers["urgent"] != "" {
			return time.Second
		}
		return slow(attempt, err, task)
	})
	fmt.Println(backoff(7, nil, &duly.Task{Headers: map[string]string{"urgent": "yes"}}))
	// Output:
	// 1s
}

// A task that recurs is kept in its queue by every worker that has it in Recurring,
// and run by one of them at each tick.
func ExampleEvery() {
	orders, end := exampleQueue()
	defer end()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	mux, sweeps := duly.NewMux(), 0
	mux.HandleFunc("sweep", func(_ context.Context, d *duly.Delivery) error {
		fmt.Println("swept,", d.Every)
		if sweeps++; sweeps == 2 {
			stop()
		}
		return nil
	})
	err := worker.New(mux, worker.Config{Recurring: []worker.Recurring{
		worker.Every("@every 100ms", duly.Task{ID: "sweep", Kind: "sweep"}),
	}}, orders).Run(ctx)
	fmt.Println("stopped:", err)
	// Output:
	// swept, @every 100ms
	// swept, @every 100ms
	// stopped: <nil>
}

// In the night to 29 March 2026 there is no 02:30 in Berlin.
func ExampleNextTick() {
	tick := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	for range 3 {
		var err error
		if tick, err = worker.NextTick("CRON_TZ=Europe/Berlin 30 2 * * *", tick); err != nil {
			fmt.Println(err)
		}
		fmt.Println(tick)
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}
