package worker_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// BenchmarkProcess runs tasks that do nothing, from pop to settlement. An op is a
// task.
func BenchmarkProcess(b *testing.B) {
	for _, concurrency := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			q := benchQueue(b)
			tasks := make([]duly.Task, b.N)
			for i := range tasks {
				tasks[i] = duly.Task{Kind: "k", Payload: []byte(`{"order":"4711"}`)}
			}
			_, err := q.EnqueueMany(b.Context(), tasks)
			must(b, err)
			b.ReportAllocs()
			b.ResetTimer()
			runAll(b, q, b.N, concurrency, func(*duly.Delivery) {})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// From pop to settlement, with a real queue.
func TestATaskTakesAtMost16Allocations(t *testing.T) {
	const n = 20_000
	q := benchQueue(t)
	tasks := make([]duly.Task, n)
	for i := range tasks {
		tasks[i] = duly.Task{Kind: "k", Payload: []byte(`{"order":"4711"}`)}
	}
	_, err := q.EnqueueMany(t.Context(), tasks)
	must(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	runAll(t, q, n, 100, func(*duly.Delivery) {})
	runtime.ReadMemStats(&after)
	each := float64(after.Mallocs-before.Mallocs) / n
	t.Logf("%.1f allocations a task", each)
	if each > 16 {
		t.Errorf("%.1f allocations a task, over 16", each)
	}
}

// BenchmarkLateness runs 500 tasks that become due in a second, one by one, and
// reports how late their handlers begin. An op is a task; run 5000x or more.
func BenchmarkLateness(b *testing.B) {
	q := benchQueue(b)
	first := time.Now().Add(200*time.Millisecond + time.Duration(b.N)*200*time.Microsecond)
	for i := range b.N {
		due := first.Add(time.Duration(i) * 2 * time.Millisecond)
		_, err := q.Enqueue(b.Context(), duly.Task{Kind: "k"}, queue.At(due))
		must(b, err)
	}
	var mu sync.Mutex
	late := make([]time.Duration, 0, b.N)
	early := 0
	runAll(b, q, b.N, 10, func(d *duly.Delivery) {
		since := time.Since(d.Due) // the server's clock is this machine's
		mu.Lock()
		defer mu.Unlock()
		if late = append(late, since); since < 0 || d.Popped.Before(d.Due) {
			early++
		}
	})
	slices.Sort(late)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(float64(early), "early")
	b.ReportMetric(ms(late[len(late)/2]), "p50-ms")
	b.ReportMetric(ms(late[len(late)*99/100]), "p99-ms")
	b.ReportMetric(ms(late[len(late)-1]), "max-ms")
	b.ReportMetric(0, "ns/op") // says nothing: the tasks set the pace
}

func benchQueue(tb testing.TB) *queue.Queue {
	tb.Helper()
	q, err := queue.New(redistest.Start(tb).Client(), "bench", queue.Config{})
	must(tb, err)
	return q
}

// runAll runs a worker until n tasks have run and are settled.
func runAll(tb testing.TB, q *queue.Queue, n, concurrency int, each func(*duly.Delivery)) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	var ran atomic.Int64
	w := worker.New(handler(func(_ context.Context, d *duly.Delivery) error {
		each(d)
		if ran.Add(1) == int64(n) {
			cancel()
		}
		return nil
	}), worker.Config{Concurrency: concurrency, Logger: zap.NewNop()}, q)
	must(tb, w.Run(ctx))
	if s := w.Stats(); s.Acked != int64(n) {
		tb.Fatalf("worker %+v, want %d acked", s, n)
	}
}
