package worker_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// Whatever comes to the first source is run before the next of the second, which
// has all that the first leaves.
func TestStrictSourcesAreServedInTheirOrder(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const slots, takes = 4, time.Second
		high, low := newFake("high"), &endless{fake: newFake("low")}
		high.trip, low.trip = time.Millisecond, time.Millisecond
		j := new(journal)
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			j.add(d)
			time.Sleep(takes)
			return nil
		}), worker.Config{Concurrency: slots, Strict: true}, high, low)
		for round := range 3 {
			before := len(j.all())
			pass(10 * takes)
			if n := len(j.all()) - before; n < 9*slots {
				t.Errorf("round %d: %d tasks ran of the second alone, the pool could do %d", round, n, 10*slots)
			}
			since, more := time.Now(), 20
			for i := range more {
				high.add(strconv.Itoa(100*round+i), 0)
			}
			pass(7 * takes)
			for _, e := range j.all() {
				switch late := e.at.Sub(since); {
				case late < 0 || late < 10*time.Millisecond && e.Queue == "low": // its pop was on its way
				case e.Queue == "high":
					more--
				case more > 0:
					t.Errorf("round %d: after %v one of the second ran, with %d of the first left", round, late, more)
				}
			}
			if more > 0 {
				t.Errorf("round %d: %d of the first have not run", round, more)
			}
		}
	})
}

func TestStrictQueuesOnARealRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	const each = 100
	var queues []worker.Source
	for _, name := range []string{"high", "low"} {
		q, err := queue.New(rdb, name, queue.Config{})
		must(t, err)
		for range each {
			_, err := q.Enqueue(t.Context(), duly.Task{Kind: "k"})
			must(t, err)
		}
		queues = append(queues, q)
	}
	ran := make(chan string, 2*each)
	launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
		ran <- d.Queue
		<-time.After(time.Millisecond)
		return nil
	}), worker.Config{Concurrency: 1, Strict: true}, queues...)
	for i := range 2 * each {
		either := i == 0 || i == each // the second may be quicker to ask for the first slot
		if name := <-ran; !either && (name == "high") != (i < each) {
			t.Errorf("run %d is of the queue %s", i+1, name)
		}
	}
}

// What is put by for the second while it is asked is the first's when it has work.
func TestAStrictSourceNeedNotWaitForAPopOfOneBehindIt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		high, low := newFake("high"), &endless{fake: newFake("low")}
		started := make(map[string]time.Time)
		var begun atomic.Int64 // so that one slot becomes free after the other
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			if d.Queue == "high" {
				started[d.ID] = time.Now()
			}
			time.Sleep(time.Second + time.Duration(begun.Add(1))*50*time.Millisecond)
			return nil
		}), worker.Config{Concurrency: 4, Strict: true}, high, low)
		pass(time.Second / 2)
		hung := make(chan struct{})
		defer close(hung)
		low.meddle(on("pop", hang(hung)))
		pass(time.Second) // the pop for the first free slot hangs, three are put by
		high.add("urgent", 0)
		since := time.Now()
		pass(500 * time.Millisecond)
		if at, ok := started["urgent"]; !ok || at.Sub(since) > 10*time.Millisecond {
			t.Errorf("started: %v, after %v", ok, at.Sub(since))
		}
	})
}

// All that becomes free while the first is being asked is put by for it.
func TestAStrictSourceIsWaitedForWhileItIsAsked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		high, low := newFake("high"), &endless{fake: newFake("low")}
		high.trip = 300 * time.Millisecond
		high.addMany(1000)
		began, ofLow := time.Now(), 0
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			if d.Queue == "low" && time.Since(began) > time.Second { // at the start it may be the quicker to ask
				ofLow++
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}), worker.Config{Concurrency: 4, Strict: true}, high, low)
		pass(20 * time.Second)
		if ran := len(high.ends()); ofLow > 0 || ran < 40 {
			t.Errorf("%d of the second ran, and %d of the first, which had more", ofLow, ran)
		}
	})
}
