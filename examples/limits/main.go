// Limits calls a service that allows few calls at once and few in a second. Three
// workers keep to that together, and an operator changes it while they run. In one
// of them a report, which needs much memory, keeps to a limit of its own.
//
//	go run ./examples/limits
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
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// A meter counts the handlers that run, and ends once a number of them has.
type meter struct {
	mu                  sync.Mutex
	running, most, left int
	end                 context.CancelFunc
}

// HandleTask is a call that takes 20 ms.
func (m *meter) HandleTask(context.Context, *duly.Delivery) error {
	m.mu.Lock()
	m.running++
	m.most = max(m.most, m.running)
	m.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	if m.left--; m.left == 0 {
		m.end()
	}
	return nil
}

// calls has some calls made by three workers, and returns how many ran at once and
// how long all took.
func calls(rdb *redis.Client, n int) (most int, took time.Duration) {
	ctx, end := context.WithCancel(context.Background())
	m := &meter{left: n, end: end}
	var workers sync.WaitGroup
	began := time.Now()
	for range 3 { // each as if in a process of its own
		workers.Go(func() { check(worker.New(m, worker.Config{}, open(rdb)).Run(ctx)) })
	}
	for range n {
		_, err := open(rdb).Enqueue(context.Background(), duly.Task{Kind: "call"})
		check(err)
	}
	workers.Wait()
	return m.most, time.Since(began)
}

func open(rdb *redis.Client) *queue.Queue {
	q, err := queue.New(rdb, "calls", queue.Config{})
	check(err)
	return q
}

func main() {
	mini, err := miniredis.Run() // a Redis within this program, in place of your own
	check(err)
	defer mini.Close()
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	ctx := context.Background()

	check(open(rdb).SetLimits(ctx, queue.Limits{Running: 2}))
	most, _ := calls(rdb, 20)
	fmt.Println("at most 2 at once:", most <= 2)

	// From any process, at any time; or: duly limit calls -running 0 -rate 50 -burst 5
	check(open(rdb).SetLimits(ctx, queue.Limits{Rate: 50, Burst: 5}))
	_, took := calls(rdb, 30)
	fmt.Println("30 calls at 50 a second, the first 5 at once, take half a second:", took >= time.Second/2)
	limits, err := open(rdb).Limits(ctx)
	check(err)
	fmt.Printf("the limits are %+v\n", limits)
	check(open(rdb).SetLimits(ctx, queue.Limits{}))

	reports(ctx, rdb)
	check(rdb.Close())
}

// reports runs a kind with a limit beside one without in one worker.
func reports(ctx context.Context, rdb *redis.Client) {
	ctx, end := context.WithCancel(ctx)
	report, call := &meter{left: 10, end: func() {}}, &meter{left: 20, end: func() {}}
	for range report.left {
		_, err := open(rdb).Enqueue(ctx, duly.Task{Kind: "report"})
		check(err)
	}
	for range call.left {
		_, err := open(rdb).Enqueue(ctx, duly.Task{Kind: "call"})
		check(err)
	}
	call.end = func() {
		report.mu.Lock()
		defer report.mu.Unlock()
		fmt.Println("the calls are done, and reports are left:", report.left > 0)
	}
	report.end = end
	mux := duly.NewMux()
	mux.Handle("report", report)
	mux.Handle("call", call)
	check(worker.New(mux, worker.Config{KindLimits: map[string]int{"report": 1}}, open(rdb)).Run(ctx))
	fmt.Println("one report at a time:", report.most == 1)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Output:
// at most 2 at once: true
// 30 calls at 50 a second, the first 5 at once, take half a second: true
// the limits are {Running:0 Rate:50 Burst:5}
// the calls are done, and reports are left: true
// one report at a time: true
