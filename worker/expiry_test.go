package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// What becomes of a task that is due in a second and runs for two, with one slot
// and one task before it.
func TestATaskThatCannotStartInTimeIsNotRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expires time.Duration // from the start; 0: never
		action  duly.Action   // that it asks for
		fast    time.Duration // the clock of the source is
		want    duly.Action
	}{
		"never":                         {want: duly.Acked},
		"after it has started":          {expires: 2001 * time.Millisecond, want: duly.Acked},
		"when it starts":                {expires: 2 * time.Second, want: duly.Acked},
		"before it is its turn":         {expires: 1500 * time.Millisecond, want: duly.Buried},
		"before it is its turn: bury":   {expires: 1500 * time.Millisecond, action: duly.Buried, want: duly.Buried},
		"before it is its turn: drop":   {expires: 1500 * time.Millisecond, action: duly.Dropped, want: duly.Dropped},
		"before it is due":              {expires: time.Second / 2, want: duly.Buried},
		"by the source's clock":         {expires: time.Hour, fast: time.Hour, want: duly.Buried},
		"not yet by the source's clock": {expires: 3 * time.Hour, fast: time.Hour, want: duly.Acked},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.fast = c.fast
				f.add("before", 0)
				late := duly.Task{ID: "late", Kind: "k", OnExpiry: c.action}
				if c.expires > 0 {
					late.Expires = time.Now().Add(c.expires)
				}
				f.addTask(late, time.Second)
				ran := make(map[string]int)
				w := launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
					ran[d.ID]++
					time.Sleep(2 * time.Second)
					return nil
				}), worker.Config{Concurrency: 1}, f)
				pass(10 * time.Second)
				end := f.ends("late")[0]
				expired := c.want != duly.Acked
				if end.Action != c.want || expired == (ran["late"] > 0) {
					t.Errorf("ran %d times and was settled as %s", ran["late"], end.Action)
				}
				if expired {
					wants(t, end.Err, duly.ErrExpired)
				}
				if got := w.Stats().Expired; (got == 1) != expired {
					t.Errorf("%d expired", got)
				}
			})
		})
	}
}

func TestATaskThatHasFailedIsNotRetriedWhenItHasExpired(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q := openQueue(t, "orders")
		ran := 0
		launch(t, handler(func(context.Context, *duly.Delivery) error {
			ran++
			return duly.RetryIn(7*time.Second, errBoom)
		}), worker.Config{}, q)
		_, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k", Expires: time.Now().Add(10 * time.Second)})
		must(t, err)
		pass(time.Minute)
		info, err := q.Get(t.Context(), "a")
		must(t, err)
		if ran != 2 || info.State != queue.Dead || info.LastError != duly.ErrExpired.Error() {
			t.Fatalf("%d runs; then it is %s: %s", ran, info.State, info.LastError)
		}
	})
}

func TestExpiredTasksOnARealRedis(t *testing.T) {
	t.Parallel()
	q, err := queue.New(redistest.Start(t).Client(), "orders", queue.Config{})
	must(t, err)
	useless := time.Now().Add(20 * time.Millisecond)
	for _, task := range []duly.Task{
		{ID: "buried", Kind: "k", Expires: useless},
		{ID: "dropped", Kind: "k", Expires: useless, OnExpiry: duly.Dropped},
		{ID: "runs", Kind: "k", Expires: useless.Add(time.Hour)},
	} {
		_, err := q.Enqueue(t.Context(), task, queue.In(100*time.Millisecond))
		must(t, err)
	}
	ran := make(chan string, 3)
	w := launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
		ran <- d.ID
		return nil
	}), worker.Config{Concurrency: 1}, q)
	if first := <-ran; first != "runs" { // it is the last of those that are due together
		t.Errorf("%s was run", first)
	}
	w.stop()
	for id, want := range map[string]queue.State{"buried": queue.Dead, "dropped": queue.Missing, "runs": queue.Missing} {
		info, err := q.Get(t.Context(), id)
		must(t, err)
		if info.State != want {
			t.Errorf("%s is %s, want %s", id, info.State, want)
		}
	}
}

// A quick handler is fetched ahead for: what waits here is late all the same.
func TestATaskThatExpiresInTheBacklogIsNotRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.trip = time.Millisecond
		useless := time.Now().Add(100*time.Millisecond + 500*time.Microsecond)
		for i := range 300 {
			f.addTask(duly.Task{ID: fmt.Sprintf("%03d", i), Kind: "k", Expires: useless, OnExpiry: duly.Dropped}, 0)
		}
		ran := 0
		w := launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			if ran++; !d.Expires.IsZero() && time.Since(useless) > f.trip {
				t.Errorf("run %d is %v late", ran, time.Since(useless))
			}
			time.Sleep(time.Millisecond)
			return nil
		}), worker.Config{Concurrency: 1}, f)
		pass(time.Second)
		if expired := w.Stats().Expired; ran < 50 || ran+int(expired) != 300 {
			t.Errorf("%d ran, %d expired", ran, expired)
		}
		f.add("after", 0)
		pass(time.Second)
		if len(f.ends("after")) == 0 {
			t.Error("the slot is lost")
		}
	})
}
