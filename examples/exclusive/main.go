// Exclusive has two kinds of tasks and the application itself work on one order,
// by the order's lock key: never two of them at a time, though the worker has
// slots for all, and each with a higher fence than the one before.
//
//	go run ./examples/exclusive
package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

func orderKey(id string) string { return "order:" + id }

// Tasks of both kinds run under the lock of their order.
var (
	Ship    = duly.Kind[string]{Name: "order.ship", LockKey: orderKey}
	Invoice = duly.Kind[string]{Name: "order.invoice", LockKey: orderKey}
)

// An order is a row that remembers the highest fence that it was written with, and
// refuses lower ones: who was paused for too long comes too late.
type order struct {
	mu      sync.Mutex
	inside  int
	fence   uint64
	entries int
}

func (o *order) work(who string, fence uint64) error {
	if err := o.enter(who, fence); err != nil {
		return err
	}

	time.Sleep(20 * time.Millisecond) // time enough for others to come, if they could

	o.mu.Lock()
	defer o.mu.Unlock()
	o.inside--
	o.entries++
	return nil
}

func (o *order) enter(who string, fence uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if fence < o.fence {
		return fmt.Errorf("%s comes too late: fence %d after %d", who, fence, o.fence)
	}
	o.inside++
	fmt.Printf("%s works on the order; others there: %d; fence is higher: %v\n", who, o.inside-1, fence > o.fence)
	o.fence = fence
	return nil
}

func main() {
	mini, err := miniredis.Run() // a Redis within this program, in place of your own
	check(err)
	defer mini.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	orders, err := queue.New(rdb, "orders", queue.Config{})
	check(err)
	ctx, stop := context.WithCancel(context.Background())

	row, left := &order{}, new(sync.WaitGroup)
	handle := func(_ context.Context, _ string, d *duly.Delivery) error {
		defer left.Done()
		return row.work(d.Kind, d.Fence)
	}
	mux := duly.NewMux()
	Ship.Handle(mux, handle)
	Invoice.Handle(mux, handle)
	for _, task := range []duly.Task{Ship.Task("42"), Invoice.Task("42"), Ship.Task("42"), Invoice.Task("42")} {
		left.Add(1)
		_, err := orders.Enqueue(ctx, task)
		check(err)
	}

	// The callback of the payment takes the same lock, by its name. It does not
	// wait for all of the tasks: who waits here is next.
	left.Go(func() {
		check(orders.Locker().Do(ctx, orderKey("42"), 10*time.Second, func(_ context.Context, l *lock.Lease) error {
			return row.work("the payment", l.Fence())
		}))
	})
	go func() {
		left.Wait()
		stop()
	}()
	check(worker.New(mux, worker.Config{Concurrency: 10}, orders).Run(ctx))
	fmt.Println(row.entries, "have worked on the order")
	check(rdb.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Output:
// … works on the order; others there: 0; fence is higher: true
// … works on the order; others there: 0; fence is higher: true
// … works on the order; others there: 0; fence is higher: true
// … works on the order; others there: 0; fence is higher: true
// … works on the order; others there: 0; fence is higher: true
// 5 have worked on the order
