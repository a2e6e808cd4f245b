package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestAPopOfManyTakesThemInDueOrder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var want []string
		for i := range 30 {
			id := fmt.Sprintf("%02d", 99-i) // by ID the last is the first
			r.enqueue(t, id, queue.In(time.Hour))
			must(t, r.ZAdd(t.Context(), r.key("due"), redis.Z{Score: float64(i + 1), Member: id}).Err())
			want = append(want, id)
		}
		equal(t, "popped", ids(r.pop(t, 20)), want[:20])
		equal(t, "popped next", ids(r.pop(t, 20)), want[20:])
	})
}

func TestAPopOfOneTakesWhatComesBackBeforeWhatIsDueLater(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "earlier")
		earlier := r.popOne(t, "earlier")
		r.enqueue(t, "later")
		r.lapse(t, earlier)
		equal(t, "popped", ids(r.pop(t, 1)), []string{"earlier"})
		equal(t, "popped then", ids(r.pop(t, 1)), []string{"later"})
	})
}

func TestAPopOfManyTakesWhatIsDueInThisMicrosecond(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	for i := range 10 {
		c.enqueue(t, fmt.Sprint(i), queue.In(time.Duration(i)*time.Microsecond))
	}
	for i := 4; i < 10; i += 5 {
		c.step(4 * time.Microsecond)
		equal(t, "popped", len(c.pop(t, 10)), 5)
		c.step(time.Microsecond)
	}
}

func TestALeaseThatEndsTakesNoOtherAlong(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "dies")
		dies := r.popOne(t, "dies")
		r.enqueue(t, "runs")
		runs := r.popOne(t, "runs")
		r.lapse(t, dies)
		equal(t, "popped", ids(r.pop(t, 2)), []string{"dies"})
		r.settle(t, duly.Acked, runs)
	})
}

func TestAnAttemptThatWasNotMadeIsNotCounted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for id, failures := range map[string]int{"expired": 0, "failed": 1} {
			err := errors.New("test")
			if failures == 0 {
				err = duly.ErrExpired
			}
			r.enqueue(t, id)
			lost, failed := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: r.popOne(t, id), Action: duly.Buried, Err: err}})
			must(t, failed)
			equal(t, "lost", ids(lost), []string{})
			equal(t, "failures of the "+id, r.get(t, id).Failures, failures)
		}
	})
}

// At this rate the interval between two tasks is 1000.9 ns.
func TestARateIsNotExceededByRounding(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	l := queue.Limits{Rate: 999_100, Burst: 500}
	c.limit(t, l)
	_, err := c.q.EnqueueMany(t.Context(), many(5000))
	must(t, err)
	var popped []time.Time
	for len(popped) < 5000 {
		deliveries, wait := c.popWait(t, queue.MaxBatch)
		for _, d := range deliveries {
			popped = append(popped, d.Popped)
		}
		c.settle(t, duly.Acked, deliveries...)
		c.step(max(wait, time.Microsecond))
	}
	if n, window := exceeded(popped, l); n > 0 {
		t.Errorf("%d tasks in %v", n, window)
	}
}
