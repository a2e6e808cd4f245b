package queue_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func many(n int) []duly.Task {
	tasks := make([]duly.Task, n)
	for i := range tasks {
		tasks[i] = task(fmt.Sprintf("%05d", i))
	}
	return tasks
}

func TestEnqueueManyTakesThousandsInTheirOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "warm") // the script is loaded
		r.settle(t, duly.Acked, r.popOne(t, "warm"))
		sent := r.link.scripts.Load()
		tasks := many(2*queue.MaxBatch + 1)
		receipts, err := r.q.EnqueueMany(t.Context(), tasks)
		must(t, err)
		equal(t, "scripts", r.link.scripts.Load()-sent, 3)
		equal(t, "receipts", len(receipts), len(tasks))
		for i, receipt := range receipts {
			if receipt.ID != tasks[i].ID || receipt.Outcome != queue.Added || receipt.State != queue.Missing || receipt.Err != nil {
				t.Fatalf("receipt %d is %+v", i, receipt)
			}
		}
		var got []string
		for range 3 {
			deliveries := r.pop(t, queue.MaxBatch)
			for _, d := range deliveries {
				equal(t, "payload", string(d.Payload), "payload of "+d.ID)
			}
			got = append(got, ids(deliveries)...)
		}
		if len(got) != len(tasks) || !slices.IsSorted(got) {
			t.Fatalf("%d tasks popped, in order: %v", len(got), slices.IsSorted(got))
		}
	})
}

func TestEnqueueManyOfNothing(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	receipts, err := r.q.EnqueueMany(t.Context(), nil)
	if len(receipts) != 0 || err != nil || r.link.scripts.Load() != 0 {
		t.Fatalf("got %v, %v, and %d scripts", receipts, err, r.link.scripts.Load())
	}
}

func TestEnqueueManyWithAnIDTwice(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for conflict, want := range map[queue.Conflict]string{queue.Keep: "first", queue.Replace: "third", queue.Earliest: "first"} {
			r := main.another(t, queue.Config{})
			first, second, third := task("x"), task("y"), task("x")
			first.Payload, third.Payload = []byte("first"), []byte("third")
			receipts, err := r.q.EnqueueMany(t.Context(), []duly.Task{first, second, third, second},
				queue.At(r.now(t).Add(time.Hour)), queue.OnConflict(conflict))
			must(t, err)
			last := map[bool]queue.Outcome{true: queue.Replaced, false: queue.Kept}[conflict == queue.Replace]
			var outcomes []queue.Outcome
			for _, receipt := range receipts {
				outcomes = append(outcomes, receipt.Outcome)
			}
			equal(t, "outcomes", outcomes, []queue.Outcome{queue.Added, queue.Added, last, last})
			equal(t, "payload", string(r.get(t, "x").Payload), want)
		}
	})
}

func TestEnqueueManySplitsByBytes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.q, r.link = r.queue(t, queue.Config{MaxPayload: 4 << 20})
		r.enqueue(t, "warm")
		r.settle(t, duly.Dropped, r.popOne(t, "warm"))
		sizes := []int{3 << 20, 600 << 10, 400 << 10, 600 << 10, 0, 1} // scripts: 1 task, 2, 3
		tasks := many(len(sizes))
		for i, size := range sizes {
			tasks[i].Payload = bytes.Repeat([]byte{byte(i)}, size)
		}
		sent := r.link.scripts.Load()
		_, err := r.q.EnqueueMany(t.Context(), tasks)
		must(t, err)
		equal(t, "scripts", r.link.scripts.Load()-sent, 3)
		for i, d := range r.pop(t, len(tasks)) {
			if !bytes.Equal(d.Payload, tasks[i].Payload) {
				t.Errorf("task %d: got %d bytes, want %d", i, len(d.Payload), sizes[i])
			}
		}
	})
}

func TestEnqueueManySendsNothingIfOneTaskIsInvalid(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	tasks := many(3)
	tasks[2].Kind = ""
	receipts, err := r.q.EnqueueMany(t.Context(), tasks)
	wants(t, err, queue.ErrInvalid)
	if receipts != nil || r.link.scripts.Load() != 0 {
		t.Fatalf("got %v, and %d scripts", receipts, r.link.scripts.Load())
	}
}

func TestEnqueueManyTellsWhatWasTakenBeforeALostReply(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var tasks []duly.Task
		for _, id := range []string{"x", "a", "x", "b", "x", "c"} { // an ID comes but once in a script: 3 scripts
			tasks = append(tasks, task(id))
		}
		r.enqueue(t, "warm", queue.In(time.Hour)) // the script is loaded
		r.link.onReply(func() error { r.link.lose(); return nil })
		receipts, err := r.q.EnqueueMany(t.Context(), tasks, queue.In(time.Hour))
		wants(t, err, queue.ErrUnknownOutcome)
		for i, receipt := range receipts {
			switch part := i / 2; {
			case receipt.ID != tasks[i].ID:
				t.Fatalf("receipt %d is of %q", i, receipt.ID)
			case part == 0 && (receipt.Err != nil || receipt.Outcome != queue.Added):
				t.Fatalf("taken, but receipt %d is %+v", i, receipt)
			case part == 1 && !errors.Is(receipt.Err, queue.ErrUnknownOutcome):
				t.Fatalf("unknown, but receipt %d is %+v", i, receipt)
			case part == 2 && (receipt.Err == nil || errors.Is(receipt.Err, queue.ErrUnknownOutcome)):
				t.Fatalf("not sent, but receipt %d is %+v", i, receipt)
			case part > 0 && receipt.Outcome != "":
				t.Fatalf("receipt %d has an outcome beside its error: %+v", i, receipt)
			}
		}
		again, err := r.q.EnqueueMany(t.Context(), tasks, queue.In(time.Hour))
		must(t, err)
		for i, want := range []queue.Outcome{queue.Kept, queue.Kept, queue.Kept, queue.Kept, queue.Kept, queue.Added} {
			equal(t, "outcome on the second try", again[i].Outcome, want)
		}
	})
}
