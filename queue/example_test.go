package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// open returns a queue on a Redis in memory; a program would connect to its own.
func open() (orders *queue.Queue, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaintNotificationsConfig: plain})
	orders, err = queue.New(rdb, "orders", queue.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return orders, func() {
		_ = rdb.Close()
		server.Close()
	}
}

func Example() {
	orders, end := open()
	defer end()
	ctx := context.Background()

	cancel := duly.Task{ID: "cancel:42", Kind: "order.cancel", Payload: []byte(`{"order":"42"}`)}
	receipt, err := orders.Enqueue(ctx, cancel)
	fmt.Println(receipt.Outcome, err)

	deliveries, _, err := orders.Pop(ctx, 100, 15*time.Second)
	for _, d := range deliveries {
		fmt.Println(d.Kind, string(d.Payload), "attempt", d.Attempt, err)
	}

	lost, err := orders.Settle(ctx, []duly.Settlement{{Delivery: deliveries[0], Action: duly.Acked}})
	fmt.Println(len(lost), "lost", err)

	info, err := orders.Get(ctx, "cancel:42")
	fmt.Println(info.State, err)
	// Output:
	// added <nil>
	// order.cancel {"order":"42"} attempt 1 <nil>
	// 0 lost <nil>
	// missing <nil>
}

func ExampleQueue_Enqueue() {
	orders, end := open()
	defer end()
	ctx := context.Background()
	due := time.Date(2050, 1, 1, 12, 0, 0, 0, time.UTC)
	task := duly.Task{ID: "remind:42", Kind: "order.remind"}

	for _, attempt := range []struct {
		due      time.Time
		conflict queue.Conflict
	}{
		{due, queue.Keep},
		{due.Add(time.Hour), queue.Keep},
		{due.Add(time.Hour), queue.Earliest},
		{due.Add(-time.Hour), queue.Earliest},
		{due.Add(2 * time.Hour), queue.Replace},
	} {
		r, err := orders.Enqueue(ctx, task, queue.At(attempt.due), queue.OnConflict(attempt.conflict))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(attempt.conflict, "→", r.Outcome, "was", r.State, "now due at", r.Due.UTC().Format(time.TimeOnly))
	}
	// Output:
	// keep → added was missing now due at 12:00:00
	// keep → kept was due now due at 12:00:00
	// earliest → kept was due now due at 12:00:00
	// earliest → replaced was due now due at 11:00:00
	// replace → replaced was due now due at 14:00:00
}

func ExampleQueue_Cancel() {
	orders, end := open()
	defer end()
	ctx := context.Background()
	if _, err := orders.Enqueue(ctx, duly.Task{ID: "cancel:42", Kind: "order.cancel"}, queue.In(15*time.Minute)); err != nil {
		log.Fatal(err)
	}

	state, err := orders.Cancel(ctx, "cancel:42") // paid in time
	fmt.Println(state, err)
	state, err = orders.Cancel(ctx, "cancel:42")
	fmt.Println(state, err)
	// Output:
	// due <nil>
	// missing <nil>
}

func ExampleQueue_Settle() {
	orders, end := open()
	defer end()
	ctx := context.Background()
	if _, err := orders.Enqueue(ctx, duly.Task{ID: "ship:42", Kind: "order.ship"}); err != nil {
		log.Fatal(err)
	}

	for _, action := range []duly.Action{duly.Retried, duly.Buried} {
		deliveries, _, err := orders.Pop(ctx, 1, 15*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		_, err = orders.Settle(ctx, []duly.Settlement{
			{Delivery: deliveries[0], Action: action, Err: errors.New("no carrier")},
		})
		if err != nil {
			log.Fatal(err)
		}
		info, err := orders.Get(ctx, "ship:42")
		fmt.Println(info.State, info.Failures, info.LastError, err)
	}
	n, err := orders.Revive(ctx, "ship:42")
	fmt.Println(n, "revived", err)
	// Output:
	// due 1 no carrier <nil>
	// dead 2 no carrier <nil>
	// 1 revived <nil>
}

func ExampleQueue_Lock() {
	orders, end := open()
	defer end()
	ctx := context.Background()
	if _, err := orders.Enqueue(ctx, duly.Task{ID: "ship:42", Kind: "order.ship"}); err != nil {
		log.Fatal(err)
	}

	err := orders.Lock(ctx, 10*time.Second, func(locked context.Context) error {
		others, _, err := orders.Pop(ctx, 1, 15*time.Second)
		fmt.Println("others pop", len(others), err)
		mine, _, err := orders.Pop(locked, 1, 15*time.Second)
		fmt.Println("the job pops", len(mine), err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// others pop 0 <nil>
	// the job pops 1 <nil>
	// <nil>
}
