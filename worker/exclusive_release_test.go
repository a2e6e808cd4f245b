package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// A task that is parked for a lock of the application runs when that is released: it
// is told, for a poll would come seconds later.
func TestAParkedTaskResumesAtOnceWhenTheApplicationReleasesItsLock(t *testing.T) {
	t.Parallel()
	q, err := queue.New(redistest.Start(t).Client(), "tasks", queue.Config{})
	must(t, err)
	ran := make(chan time.Time, 1)
	launch(t, duly.HandlerFunc(func(context.Context, *duly.Delivery) error {
		ran <- time.Now()
		return nil
	}), worker.Config{}, q)
	var all []time.Duration
	for i := range 100 {
		id := fmt.Sprint(i)
		lease, err := q.Locker().Acquire(t.Context(), "order:42", time.Minute)
		must(t, err)
		_, err = q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "test", LockKey: "order:42"})
		must(t, err)
		eventually(t, "the task is parked", time.Minute, func() bool {
			info, err := q.Get(t.Context(), id)
			return err == nil && info.State == queue.Parked
		})
		released := time.Now()
		must(t, lease.Release(t.Context()))
		all = append(all, (<-ran).Sub(released))
	}
	slices.Sort(all)
	t.Logf("from the release to the handler: p50 %v, p99 %v, longest %v", quantile(all, 0.5), quantile(all, 0.99), all[len(all)-1])
	if p50 := quantile(all, 0.5); p50 > time.Second {
		t.Errorf("half of them took more than %v", p50)
	}
}
