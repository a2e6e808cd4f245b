package workertest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker/workertest"
)

func TestQueuePassesKitOnRedis(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	workertest.TestSource(t, func(t *testing.T) workertest.Harness { return ofQueue(t, client) })
}

// TestQueuePassesKitOnMiniredis moves its clock by hand.
func TestQueuePassesKitOnMiniredis(t *testing.T) {
	t.Parallel()
	workertest.TestSource(t, func(t *testing.T) workertest.Harness {
		mini, client := redistest.Mini(t)
		var mu sync.Mutex
		now := time.Now()
		mini.SetTime(now)
		h := ofQueue(t, client)
		h.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
		h.Sleep = func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
			mini.SetTime(now)
			mini.FastForward(d)
		}
		return h
	})
}

func ofQueue(t *testing.T, client *redis.Client) workertest.Harness {
	t.Helper()
	q, err := queue.New(client, t.Name(), queue.Config{})
	must(t, err)
	return workertest.Harness{
		Source: q,
		Enqueue: func(ctx context.Context, task duly.Task, in time.Duration) error {
			_, err := q.Enqueue(ctx, task, queue.In(in))
			return err
		},
		State: func(ctx context.Context, id string) (workertest.State, error) {
			info, err := q.Get(ctx, id)
			return workertest.State(info.State), err
		},
		CancelRunning: func(ctx context.Context, id string) error {
			_, err := q.CancelRunning(ctx, id)
			return err
		},
		Report: func(ctx context.Context, id string) ([]byte, []byte, error) {
			info, err := q.Get(ctx, id)
			return info.Result, info.Progress, err
		},
	}
}
