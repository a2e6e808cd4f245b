// Delayed runs tasks when they are due: one on time, one not at all since it is
// cancelled before, and one later than it was first said.
//
//	go run ./examples/delayed
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// Call is a reminder to call somebody. Its ID is the business's own: who is to be
// called is called once.
var Call = duly.Kind[string]{
	Name: "call",
	ID:   func(who string) string { return "call:" + who },
}

func main() {
	mini, err := miniredis.Run() // a Redis within this program, in place of your own
	check(err)
	defer mini.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	calls, err := queue.New(rdb, "calls", queue.Config{})
	check(err)
	ctx, stop := context.WithCancel(context.Background())

	for i, who := range []string{"Ann", "Ben", "Cem", "Ann"} {
		receipt, err := calls.Enqueue(ctx, Call.Task(who), queue.In(time.Duration(i+2)*100*time.Millisecond))
		check(err)
		fmt.Println(receipt.ID, "is", receipt.Outcome)
	}
	state, err := calls.Cancel(ctx, "call:Ben")
	check(err)
	fmt.Println("call:Ben was", state, "and is cancelled")
	state, err = calls.Reschedule(ctx, "call:Cem", queue.In(500*time.Millisecond))
	check(err)
	fmt.Println("call:Cem was", state, "and is put off")

	mux := duly.NewMux()
	Call.Handle(mux, func(_ context.Context, who string, d *duly.Delivery) error {
		late := time.Since(d.Due)
		fmt.Printf("calling %s, early: %v, late by %v\n", who, late < 0, late)
		if who == "Cem" {
			stop() // nothing is left to do
		}
		return nil
	})
	check(worker.New(mux, worker.Config{Concurrency: 1}, calls).Run(ctx))
	check(rdb.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Output:
// call:Ann is added
// call:Ben is added
// call:Cem is added
// call:Ann is kept
// call:Ben was due and is cancelled
// call:Cem was due and is put off
// calling Ann, early: false, late by …
// calling Cem, early: false, late by …
