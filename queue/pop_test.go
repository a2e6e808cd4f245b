package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestPopHandsOutTheWholeTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		want := duly.Task{
			ID: "order:42 é\u2028:%", Kind: "order.cancel", Payload: []byte("\x00\r\n\xff:{}"), LockKey: "order:42",
			Headers: map[string]string{"traceparent": "00-ab", "": "empty"}, MaxAttempts: 7, Timeout: 90 * time.Second,
		}
		receipt, err := r.q.Enqueue(t.Context(), want)
		must(t, err)
		from := r.now(t)
		d := r.popOne(t, want.ID)
		to := r.now(t)
		equal(t, "task", d.Task, want)
		equal(t, "queue", d.Queue, r.q.Name())
		equal(t, "due", d.Due, receipt.Due)
		between(t, "popped", d.Popped, from, to)
		equal(t, "attempt, crashes", []int{d.Attempt, d.Crashes}, []int{1, 0})
		if d.Fence == 0 {
			t.Error("no fence")
		}
		leased, err := r.q.List(t.Context(), queue.Leased, 0, 1)
		must(t, err)
		between(t, "lease end", leased[0].At, from.Add(time.Hour), to.Add(time.Hour))
	})
}

func TestPopTakesTheEarliestDueFirstAndTiesByID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for id, due := range map[string]float64{"b": 30, "a": 30, "d": 10, "c": 20, "e": 40} {
			r.enqueue(t, id, queue.In(time.Hour))
			must(t, r.ZAdd(t.Context(), r.key("due"), redis.Z{Score: due, Member: id}).Err())
		}
		r.enqueue(t, "later", queue.In(time.Hour))
		equal(t, "first", ids(r.pop(t, 2)), []string{"d", "c"})
		equal(t, "second", ids(r.pop(t, 1)), []string{"a"})
		equal(t, "third", ids(r.pop(t, 10)), []string{"b", "e"})
		equal(t, "fourth", ids(r.pop(t, 10)), []string{})
	})
}

func TestPopTellsHowLongToWait(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		wait := func(what string, n int, from, to time.Duration) {
			t.Helper()
			_, wait, err := r.q.Pop(t.Context(), n, time.Hour)
			must(t, err)
			if wait < from || wait > to {
				t.Errorf("%s: wait %v, want %v to %v", what, wait, from, to)
			}
		}
		const slack = time.Minute
		wait("an empty queue", 1, 24*time.Hour, 24*time.Hour)
		r.enqueue(t, "far", queue.In(1000*time.Hour))
		wait("the next is due in weeks", 1, 24*time.Hour, 24*time.Hour)
		r.enqueue(t, "a", queue.In(2*time.Hour))
		wait("the next is due in 2 h", 1, 2*time.Hour-slack, 2*time.Hour)
		for _, id := range []string{"b", "c"} {
			r.enqueue(t, id)
		}
		wait("as many as asked for", 1, 0, 0)
		wait("fewer than asked for", 2, time.Hour-slack, time.Hour) // the leases end next
		r.enqueue(t, "d", queue.In(30*time.Minute))
		wait("nothing", 1, 30*time.Minute-slack, 30*time.Minute)
	})
}

func TestAPopAfterTheWaitBringsTheTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x", queue.In(30*time.Millisecond))
		for {
			deliveries, wait, err := r.q.Pop(t.Context(), 1, time.Hour)
			must(t, err)
			if len(deliveries) == 1 {
				equal(t, "popped early", deliveries[0].Popped.Before(deliveries[0].Due), false)
				return
			}
			if wait <= 0 || wait > 30*time.Millisecond {
				t.Fatalf("wait %v", wait)
			}
			<-time.After(wait)
		}
	})
}

func TestPopGivesTheBatchOneFenceThatRises(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		other, _ := r.queue(t, queue.Config{})
		last := uint64(0)
		for i := range 4 {
			r.enqueue(t, fmt.Sprint("a", i))
			r.enqueue(t, fmt.Sprint("b", i))
			from := []*queue.Queue{r.q, other}[i%2]
			batch := popFrom(t, from, 2)
			if len(batch) != 2 || batch[0].Fence != batch[1].Fence || batch[0].Fence <= last {
				t.Fatalf("after fence %d: %+v", last, batch)
			}
			last = batch[0].Fence
		}
	})
}

func TestPopByManyTakesEachTaskOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const tasks, poppers = 500, 8
		_, err := r.q.EnqueueMany(t.Context(), many(tasks))
		must(t, err)
		queues := []*queue.Queue{r.q}
		other, _ := r.queue(t, queue.Config{})
		queues = append(queues, other)
		var mu sync.Mutex
		times := make(map[string]int)
		var group sync.WaitGroup
		for i := range poppers {
			group.Go(func() {
				for {
					deliveries, _, err := queues[i%len(queues)].Pop(t.Context(), 7, time.Hour)
					if err != nil || len(deliveries) == 0 {
						if err != nil {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					for _, d := range deliveries {
						times[d.ID]++
					}
					mu.Unlock()
				}
			})
		}
		group.Wait()
		equal(t, "tasks popped", len(times), tasks)
		for id, n := range times {
			equal(t, "deliveries of "+id, n, 1)
		}
	})
}

func TestPopWaitsItsTurnNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	r.enqueue(t, "x")
	entered, leave := make(chan struct{}), make(chan struct{})
	r.link.onReply(func() error { close(entered); <-leave; return nil })
	done := make(chan error, 1)
	go func() {
		_, _, err := r.q.Pop(context.WithoutCancel(t.Context()), 1, time.Hour)
		done <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, _, err := r.q.Pop(ctx, 1, time.Hour)
	wants(t, err, context.DeadlineExceeded)
	close(leave)
	must(t, <-done)
}

func TestPausedQueueHandsOutNothingAndSettles(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "a")
		d := r.popOne(t, "a")
		r.enqueue(t, "b")
		must(t, r.q.Pause(t.Context()))
		must(t, r.q.Pause(t.Context()))
		deliveries, wait, err := r.q.Pop(t.Context(), 10, time.Hour)
		must(t, err)
		equal(t, "popped while paused", []any{ids(deliveries), wait}, []any{[]string{}, 24 * time.Hour})
		if s := r.stats(t); !s.Paused || s.Ready != 1 {
			t.Fatalf("stats of a paused queue: %+v", s)
		}
		r.settle(t, duly.Acked, d)
		r.enqueue(t, "c", queue.In(time.Hour))
		must(t, r.q.Resume(t.Context()))
		must(t, r.q.Resume(t.Context()))
		equal(t, "paused", r.stats(t).Paused, false)
		r.popOne(t, "b")
	})
}
