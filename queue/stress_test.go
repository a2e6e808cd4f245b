package queue_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A ledger is what workers have seen of each task.
type ledger struct {
	sync.Mutex
	fences map[string]uint64 // of the last delivery seen
	acked  map[string]int
	errs   []string
}

func (l *ledger) failf(format string, args ...any) {
	l.errs = append(l.errs, fmt.Sprintf(format, args...))
}

// delivered records a delivery, whose fence no other of its task may have.
func (l *ledger) delivered(d *duly.Delivery) {
	l.Lock()
	defer l.Unlock()
	if l.fences[d.ID] == d.Fence {
		l.failf("%q was delivered twice under fence %d", d.ID, d.Fence)
	}
	if d.Popped.Before(d.Due) {
		l.failf("%q, due at %v, was popped at %v", d.ID, d.Due, d.Popped)
	}
	l.fences[d.ID] = max(l.fences[d.ID], d.Fence)
}

func (l *ledger) settled(id string) {
	l.Lock()
	defer l.Unlock()
	l.acked[id]++
}

func (l *ledger) missing(want int) int {
	l.Lock()
	defer l.Unlock()
	return want - len(l.acked)
}

// What the Jepsen checker total-queue asks: each task that was acknowledged by
// Enqueue comes out, none comes that was not sent, and though workers abandon
// some and are late with others, no task is acknowledged twice.
func TestManyProducersAndWorkersLoseNothingAndEndEachTaskOnce(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	const producers, workers, each = 3, 4, 100
	seen := &ledger{fences: make(map[string]uint64), acked: make(map[string]int)}
	var group sync.WaitGroup
	for p := range producers {
		group.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", p, i)
				_, err := r.q.Enqueue(t.Context(), task(id), queue.In(time.Duration(rand.IntN(20))*time.Millisecond))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range workers {
		q, _ := r.queue(t, queue.Config{MaxCrashes: 1000})
		group.Go(func() { work(t, q, seen, producers*each) })
	}
	group.Wait()
	for _, err := range seen.errs {
		t.Error(err)
	}
	for id, n := range seen.acked {
		if n != 1 {
			t.Errorf("%q was acknowledged %d times", id, n)
		}
	}
	equal(t, "acknowledged", len(seen.acked), producers*each)
	s := r.stats(t)
	equal(t, "left", []int{s.Due, s.Leased, s.Dead}, []int{0, 0, 0})
}

// work pops until each task has been acknowledged. Of its deliveries it abandons
// some, gives some back, and settles some when their lease may have run out.
func work(t *testing.T, q *queue.Queue, seen *ledger, want int) {
	deadline := time.Now().Add(20 * time.Second)
	for seen.missing(want) > 0 {
		if time.Now().After(deadline) {
			t.Errorf("%d tasks have not come in 20 s", seen.missing(want))
			return
		}
		deliveries, wait, err := q.Pop(t.Context(), 1+rand.IntN(10), queue.MinLease)
		if err != nil {
			t.Error(err)
			return
		}
		if len(deliveries) == 0 {
			<-time.After(min(wait, queue.MinLease))
		}
		for _, d := range deliveries {
			seen.delivered(d)
			action := duly.Acked
			switch rand.IntN(8) {
			case 0:
				continue // as if the worker had died
			case 1:
				action = duly.Released
			case 2:
				<-time.After(queue.MinLease) // perhaps too long
			}
			lost, err := q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: action}})
			if err != nil {
				t.Error(err)
				return
			}
			if len(lost) == 0 && action == duly.Acked {
				seen.settled(d.ID)
			}
		}
	}
}
