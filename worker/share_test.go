package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// work is a handler that takes a while.
func work(d time.Duration) handler {
	return func(context.Context, *duly.Delivery) error {
		time.Sleep(d)
		return nil
	}
}

// An endless is a source that always has more.
type endless struct {
	*fake
	next atomic.Int64
}

func (e *endless) Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	for range n {
		e.add(fmt.Sprintf("%s-%09d", e.name, e.next.Add(1)), 0)
	}
	return e.fake.Pop(ctx, n, lease)
}

func TestWeightsShareThePool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		weights     map[string]int
		concurrency int
		takes       time.Duration
	}{
		"none is one each":        {nil, 10, 20 * time.Millisecond},
		"three to one":            {map[string]int{"a": 3}, 10, 20 * time.Millisecond},
		"three to one, two slots": {map[string]int{"a": 3}, 2, 20 * time.Millisecond},
		"three to one, quick":     {map[string]int{"a": 3}, 4, time.Millisecond},
		"five to two":             {map[string]int{"a": 5, "b": 2}, 16, 50 * time.Millisecond},
		"a hundred to one":        {map[string]int{"a": 100}, 10, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				a, b := &endless{fake: newFake("a")}, &endless{fake: newFake("b")}
				a.trip, b.trip = time.Millisecond, time.Millisecond
				done := map[string]*atomic.Int64{"a": new(atomic.Int64), "b": new(atomic.Int64)}
				launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
					time.Sleep(c.takes)
					done[d.Queue].Add(1)
					return nil
				}), worker.Config{Concurrency: c.concurrency, Weights: c.weights}, a, b)
				pass(3000 * c.takes / time.Duration(c.concurrency))
				x, y := float64(max(c.weights["a"], 1)), float64(max(c.weights["b"], 1))
				ran, other := float64(done["a"].Load()), float64(done["b"].Load())
				want := x / (x + y)
				if got := ran / (ran + other); got < want-0.03 || got > want+0.03 || other == 0 {
					t.Errorf("%v of a, %v of b: share %.3f, want %.3f", ran, other, got, want)
				}
				if full := 3000.0; ran+other < full*0.8 {
					t.Errorf("%v tasks ran, the pool could do %v", ran+other, full)
				}
			})
		})
	}
}

// What one source does not use the other gets, and nothing is saved up.
func TestIdleSourceLeavesItsShare(t *testing.T) {
	virtual(t, func(t *testing.T) {
		a, b := &endless{fake: newFake("a")}, newFake("b")
		a.trip, b.trip = time.Millisecond, time.Millisecond
		j := new(journal)
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			j.add(d)
			time.Sleep(50 * time.Millisecond)
			return nil
		}), worker.Config{Concurrency: 10, Weights: map[string]int{"b": 9}}, a, b)
		pass(10 * time.Second)
		if n := len(j.all()); n < 1800 {
			t.Errorf("%d tasks of one busy source ran, the pool could do 2,000", n)
		}
		b.addMany(200)
		since := time.Now()
		pass(time.Second)
		ofA, ofB := 0, 0
		for _, e := range j.all() {
			if e.at.Before(since) {
				continue
			}
			if e.Queue == "a" {
				ofA++
			} else {
				ofB++
			}
		}
		if ofB < 150 || ofA < 10 {
			t.Errorf("after its idleness b ran %d, and a %d; want about 180 and 20", ofB, ofA)
		}
	})
}

func TestConcurrencyIsNeverExceededAndFullyUsed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := &endless{fake: newFake("q")}
		f.trip = 2 * time.Millisecond
		var running, most atomic.Int64
		var busy atomic.Int64
		w := launch(t, handler(func(context.Context, *duly.Delivery) error {
			now := running.Add(1)
			defer running.Add(-1)
			for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
			}
			d := rand.N(40 * time.Millisecond)
			busy.Add(int64(d))
			time.Sleep(d)
			if d%7 == 0 {
				panic("now and then")
			}
			return nil
		}), worker.Config{Concurrency: 7, Backoff: func(int, error, *duly.Task) time.Duration { return time.Hour }}, f)
		pass(5 * time.Second)
		if n := most.Load(); n != 7 {
			t.Errorf("%d handlers ran at once, want 7", n)
		}
		if used := float64(busy.Load()) / float64(7*5*time.Second); used < 0.9 {
			t.Errorf("the pool was busy for %.0f %% of the time", used*100)
		}
		if s := w.Stats(); s.Running > 7 || s.Running < 1 {
			t.Errorf("%d handlers run", s.Running)
		}
	})
}

// A worker whose handlers take long holds no more than it runs; one whose
// handlers are quick holds what it does in 15 ms, and never more than 2,000, also
// when they have just become slow.
func TestFetchingAheadIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes       time.Duration
		concurrency int
		most        int
	}{
		"slow":       {time.Second, 10, 10},
		"quick":      {time.Millisecond, 10, 10 + 10*15 + 20},
		"in no time": {0, 100, 100 + 2000},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := &endless{fake: newFake("q")}
				f.trip = time.Millisecond
				var running sync.WaitGroup
				most, seen := 0, make(chan int)
				running.Go(func() {
					for n := range seen {
						most = max(most, n)
					}
				})
				f.after = func(_ context.Context, verb string) error {
					if verb == "pop" {
						seen <- f.leased()
					}
					return nil
				}
				began := time.Now()
				w := launch(t, handler(func(context.Context, *duly.Delivery) error {
					if time.Since(began) < 60*time.Millisecond {
						time.Sleep(c.takes)
					} else {
						time.Sleep(5 * time.Second)
					}
					return nil
				}), worker.Config{Concurrency: c.concurrency}, f)
				pass(100*time.Millisecond + 3*c.takes)
				w.stop()
				close(seen)
				running.Wait()
				if most > c.most || most < c.concurrency {
					t.Errorf("%d tasks were held at once, want %d to %d", most, c.concurrency, c.most)
				}
			})
		})
	}
}

// Two workers on one source. One is quick and has fetched ahead when its
// handlers become slow: what it cannot start it gives back, and the other runs
// it within 50 ms and the calls that it takes.
func TestTaskDoesNotWaitWhileAnotherWorkerIsFree(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const trip = 2 * time.Millisecond
		f, j := newFake("q"), new(journal)
		f.trip = trip
		slow := func(_ context.Context, d *duly.Delivery) error {
			j.add(d)
			if d.Kind == "slow" {
				time.Sleep(10 * time.Second)
			} else {
				time.Sleep(500 * time.Microsecond)
			}
			return nil
		}
		began := time.Now()
		for i := range 1600 { // two in a ms, with two slow ones among them
			kind := "quick"
			if i == 1000 || i == 1001 {
				kind = "slow"
			}
			f.addTask(duly.Task{ID: fmt.Sprintf("%06d", i), Kind: kind}, time.Duration(i)*500*time.Microsecond)
		}
		launch(t, handler(slow), worker.Config{Concurrency: 2}, f)
		pass(300 * time.Millisecond)
		launch(t, handler(slow), worker.Config{Concurrency: 4}, f)
		pass(3 * time.Second)
		var late []time.Duration
		for _, e := range j.all() {
			if e.at.Sub(began) > 400*time.Millisecond { // until then one worker was alone
				late = append(late, e.at.Sub(e.Due))
			}
		}
		within(t, "the latest start", slices.Max(late), 0, 50*time.Millisecond+6*trip)
		if n := len(j.all()); n != 1600 {
			t.Errorf("%d of 1,600 tasks ran", n)
		}
	})
}

// A burst that one worker took is shared with the other as soon as it is seen
// that it takes long.
func TestBurstIsShared(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.trip = 2 * time.Millisecond
		note := func(_ context.Context, d *duly.Delivery) error {
			j.add(d)
			if d.Kind == "slow" {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		f.addMany(1500) // done in no time, so it fetches far ahead
		first := launch(t, handler(note), worker.Config{Concurrency: 4}, f)
		pass(2 * time.Second)
		launch(t, handler(note), worker.Config{Concurrency: 50}, f)
		pass(time.Second)
		began := time.Now()
		for i := range 54 {
			f.addTask(duly.Task{ID: fmt.Sprint("slow", i), Kind: "slow"}, 0)
		}
		pass(5 * time.Second)
		ran := 0
		for _, e := range j.all() {
			if e.Kind == "slow" {
				ran++
				within(t, e.ID+" began after", e.at.Sub(began), 0, 50*time.Millisecond+6*f.trip)
			}
		}
		if ran != 54 || first.Stats().Running != 4 {
			t.Errorf("%d of 54 tasks run, %d in the worker that had 4 slots", ran, first.Stats().Running)
		}
	})
}
