package queue_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// benchTasks returns tasks without IDs, as a producer without a business key
// has them.
func benchTasks(n int) []duly.Task {
	tasks := make([]duly.Task, n)
	for i := range tasks {
		tasks[i] = duly.Task{Kind: "order.cancel", Payload: []byte(`{"order":"` + strconv.Itoa(i) + `"}`)}
	}
	return tasks
}

func BenchmarkEnqueue(b *testing.B) {
	r, _ := onOwnRedis(b)
	task := benchTasks(1)[0]
	for b.Loop() {
		if _, err := r.q.Enqueue(b.Context(), task, queue.In(time.Hour)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEnqueueMany1000(b *testing.B) {
	r, _ := onOwnRedis(b)
	tasks := benchTasks(1000)
	for b.Loop() {
		if _, err := r.q.EnqueueMany(b.Context(), tasks, queue.In(time.Hour)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "tasks/s")
}

func BenchmarkPop100Settle100(b *testing.B) {
	r, _ := onOwnRedis(b)
	tasks := benchTasks(1000)
	settlements := make([]duly.Settlement, 0, 100)
	left := 0
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			if _, err := r.q.EnqueueMany(b.Context(), tasks); err != nil {
				b.Fatal(err)
			}
			left = len(tasks)
			b.StartTimer()
		}
		deliveries, _, err := r.q.Pop(b.Context(), 100, 15*time.Second)
		if err != nil || len(deliveries) != 100 {
			b.Fatal(len(deliveries), err)
		}
		settlements = settlements[:0]
		for _, d := range deliveries {
			settlements = append(settlements, duly.Settlement{Delivery: d, Action: duly.Acked})
		}
		if lost, err := r.q.Settle(b.Context(), settlements); err != nil || len(lost) > 0 {
			b.Fatal(len(lost), err)
		}
		left -= len(deliveries)
	}
	b.ReportMetric(float64(b.N)*100/b.Elapsed().Seconds(), "tasks/s")
}
