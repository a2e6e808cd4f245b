package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// note is a handler that writes down its deliveries and is done.
func (j *journal) note(_ context.Context, d *duly.Delivery) error {
	j.add(d)
	return nil
}

// delays are some waits.
var delays = map[string]time.Duration{
	"now": 0, "1us": time.Microsecond, "7ms": 7 * time.Millisecond, "5s": 5 * time.Second, "5s1us": 5*time.Second + time.Microsecond,
	"17m": 17*time.Minute + 123457*time.Microsecond,
}

// Each task runs at its due time to the µs. In between the worker sleeps, but
// for one pop in 5 s.
func TestTasksRunWhenDueAndNothingHappensBetween(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		began := time.Now()
		for id, d := range delays {
			f.add(id, d)
		}
		launch(t, handler(j.note), worker.Config{}, f)
		pass(6 * time.Hour)
		for _, e := range j.all() {
			if late := e.at.Sub(began.Add(delays[e.ID])); late != 0 {
				t.Errorf("%s ran %v late", e.ID, late)
			}
		}
		if n := len(j.all()); n != len(delays) {
			t.Errorf("%d of %d tasks ran", n, len(delays))
		}
		pops, most := len(f.told("pop")), int(6*time.Hour/(5*time.Second))+3*len(delays)
		if pops > most {
			t.Errorf("%d pops in 6 h, want at most %d", pops, most)
		}
		if n := len(f.told("extend")); n > 0 {
			t.Errorf("%d extensions with nothing that takes long", n)
		}
	})
}

func TestTasksOfAQueueRunWhenDue(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "orders"), new(journal)
		began := time.Now()
		for id, d := range delays {
			_, err := q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "k"}, queue.In(d))
			must(t, err)
		}
		launch(t, handler(j.note), worker.Config{}, q)
		pass(20 * time.Minute)
		for _, e := range j.all() {
			within(t, e.ID+" late", e.at.Sub(began.Add(delays[e.ID])), 0, time.Microsecond)
			if e.Popped.Before(e.Due) {
				t.Errorf("%s was popped at %v, before it was due at %v", e.ID, e.Popped, e.Due)
			}
		}
		if n := len(j.all()); n != len(delays) {
			t.Errorf("%d of %d tasks ran", n, len(delays))
		}
	})
}

// A task that is earlier than what the worker sleeps for wakes it.
func TestHintWakesTheWorker(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "orders"), new(journal)
		_, err := q.Enqueue(t.Context(), duly.Task{ID: "later", Kind: "k"}, queue.In(time.Hour))
		must(t, err)
		launch(t, handler(j.note), worker.Config{}, q)
		for i := range 20 {
			pass(time.Duration(i) * 777 * time.Millisecond) // at any point of its sleep
			_, err := q.Enqueue(t.Context(), duly.Task{Kind: "k"})
			must(t, err)
			pass(0)
			if n := len(j.all()); n != i+1 {
				t.Fatalf("%d of %d tasks ran at once", n, i+1)
			}
		}
	})
}

func TestLostHintCosts5Seconds(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.mute = true
		launch(t, handler(j.note), worker.Config{}, f)
		for range 20 {
			pass(1777 * time.Millisecond)
			f.add("a", 0)
			pass(5 * time.Second)
		}
		worst := time.Duration(0)
		for _, e := range j.all() {
			worst = max(worst, e.at.Sub(e.Due))
		}
		within(t, "the latest start", worst, time.Second, 5*time.Second)
		if n := len(j.all()); n != 20 {
			t.Errorf("%d of 20 tasks ran", n)
		}
	})
}

// A hundred workers must not all ask for a task that is not due as yet.
func TestAHintOfWhatIsDueLaterBringsAPopJustThen(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		launch(t, done, worker.Config{}, f)
		pass(5*time.Second + time.Millisecond) // two polls
		began := time.Now()
		f.hint(3 * time.Second)
		f.hint(4 * time.Second)
		pass(time.Second)
		f.hint(time.Second)
		pass(6500 * time.Millisecond)
		var pops []time.Duration
		for _, c := range f.told("pop") {
			if at := c.at.Sub(began); at > 0 {
				pops = append(pops, at)
			}
		}
		if want := []time.Duration{2 * time.Second, 7 * time.Second}; !slices.Equal(pops, want) {
			t.Errorf("pops after %v, want %v: at the earliest hint, then a poll", pops, want)
		}
	})
}

// A hint that comes while a pop is on its way may be of what that has not seen.
func TestAHintDuringAPopIsNotForgotten(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.trip = 100 * time.Millisecond
		launch(t, done, worker.Config{}, f)
		pass(time.Second)
		before := len(f.told("pop"))
		f.wake()
		pass(10 * time.Millisecond)
		f.hint(500 * time.Millisecond)
		pass(time.Second)
		if n := len(f.told("pop")) - before; n != 2 {
			t.Errorf("%d pops, want one for each hint", n)
		}
	})
}

// A flood of hints is one wake-up, and none of them blocks who gives it.
func TestHintsDoNotPileUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.trip = 10 * time.Millisecond
		launch(t, done, worker.Config{}, f)
		pass(time.Second)
		before := len(f.told("pop"))
		for range 1000 {
			f.wake()
		}
		pass(time.Second)
		if n := len(f.told("pop")) - before; n > 2 {
			t.Errorf("1,000 hints at once made %d pops", n)
		}
	})
}

func TestPausedQueueIsNotPopped(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "orders"), new(journal)
		launch(t, handler(j.note), worker.Config{}, q)
		pass(time.Second)
		must(t, q.Pause(t.Context()))
		_, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k"})
		must(t, err)
		pass(10 * time.Minute)
		if n := len(j.all()); n > 0 {
			t.Fatal("a task of a paused queue ran")
		}
		must(t, q.Resume(t.Context()))
		pass(0)
		if n := len(j.all()); n != 1 {
			t.Fatal("the task did not run as soon as the pause ended")
		}
	})
}

// A job that holds the queue's lock keeps the worker from popping until it lets
// go, and for 5 s more at most.
func TestLockedQueueIsNotPopped(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "orders"), new(journal)
		launch(t, handler(j.note), worker.Config{}, q)
		pass(time.Second)
		must(t, q.Lock(t.Context(), time.Minute, func(ctx context.Context) error {
			_, err := q.Enqueue(ctx, duly.Task{ID: "a", Kind: "k"})
			pass(30 * time.Second)
			if n := len(j.all()); n > 0 {
				t.Error("a task of a locked queue ran")
			}
			return err
		}))
		pass(5 * time.Second)
		if n := len(j.all()); n != 1 {
			t.Error("the task did not run after the lock was released")
		}
	})
}
