package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// A drain gives back what waits for a place of its kind: a tick at its own time, one
// that was cancelled not at all. Run twice at a time is two pools.
func TestADrainWithFlightsThatWaitForTheirKind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q := openQueue(t, "q")
		cfg := worker.Config{KindLimits: map[string]int{"k": 4}, DrainTimeout: time.Second}
		w := launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		}), cfg, q)
		for _, id := range []string{"1", "2", "3", "4"} {
			_, err := q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "k"})
			must(t, err)
		}
		pass(10 * time.Millisecond)
		tick, err := q.Enqueue(t.Context(), duly.Task{ID: "tick", Kind: "k", Every: "@every 1m"})
		must(t, err)
		for _, id := range []string{"c", "d"} {
			_, err = q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "k", Every: "@every 1m"})
			must(t, err)
		}
		pass(10 * time.Millisecond)
		state, err := q.CancelRunning(t.Context(), "c")
		must(t, err)
		last, err := q.Cancel(t.Context(), "d")
		must(t, err)
		if state != queue.Leased || last != queue.Leased {
			t.Fatalf("c is %s, d is %s", state, last)
		}
		w.stop()
		info, err := q.Get(t.Context(), "tick")
		must(t, err)
		gone, err := q.Get(t.Context(), "c")
		must(t, err)
		also, err := q.Get(t.Context(), "d")
		must(t, err)
		s, err := q.Stats(t.Context())
		must(t, err)
		if info.State != queue.Due || !info.At.Equal(tick.Due) || gone.State != queue.Missing || also.State != queue.Missing || s.Leased != 0 || s.Due != 5 {
			t.Errorf("tick %s at %v, want %v; c %s; d %s; %+v", info.State, info.At, tick.Due, gone.State, also.State, s)
		}
		t.Logf("%+v", w.Stats())
	})
}

func TestTwoRunsOfOneWorker(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "q"), new(journal)
		w := worker.New(handler(j.note), worker.Config{Concurrency: 2, Recurring: []worker.Recurring{worker.Every("@every 1s", tick)}}, q)
		a := start(t, w)
		b := start(t, w)
		pass(3500 * time.Millisecond)
		a.stop()
		pass(3 * time.Second)
		b.stop()
		if len(j.all()) != 6 || a.err != nil || b.err != nil {
			t.Errorf("%d runs, %v, %v", len(j.all()), a.err, b.err)
		}
	})
}
