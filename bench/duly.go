package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// dulySystem is duly with every setting left at its default, concurrency aside.
type dulySystem struct{}

func (dulySystem) name() string     { return "duly" }
func (dulySystem) kind() serverKind { return onRedis }

func (dulySystem) open(_ context.Context, addr string) (session, error) {
	rdb := newRedisClient(addr)
	q, err := queue.New(rdb, "bench", queue.Config{})
	if err != nil {
		return nil, err
	}
	return &dulySession{rdb, q}, nil
}

// newRedisClient returns a client with the pool that go-redis has by default.
func newRedisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr,
		// A plain Redis does not know these; asking would only cost commands.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

type dulySession struct {
	rdb *redis.Client
	q   *queue.Queue
}

func (s *dulySession) enqueue(ctx context.Context, t task) error {
	_, err := s.q.Enqueue(ctx, dulyTask(t), dulyDue(t.due)...)
	return err
}

// enqueueMany adds tasks that are due together, for a call has one due time.
func (s *dulySession) enqueueMany(ctx context.Context, tasks []task) error {
	batch := make([]duly.Task, len(tasks))
	for i, t := range tasks {
		batch[i] = dulyTask(t)
	}
	_, err := s.q.EnqueueMany(ctx, batch, dulyDue(tasks[0].due)...)
	return err
}

func dulyTask(t task) duly.Task {
	return duly.Task{ID: t.id, Kind: "bench", Payload: t.payload}
}

func dulyDue(due time.Time) []queue.EnqueueOption {
	if due.IsZero() {
		return nil
	}
	return []queue.EnqueueOption{queue.At(due)}
}

func (s *dulySession) work(ctx context.Context, concurrency int, h handler) (func() error, error) {
	handle := duly.HandlerFunc(func(_ context.Context, d *duly.Delivery) error {
		h(d.ID)
		return nil
	})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.New(handle, worker.Config{Concurrency: concurrency}, s.q).Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

func (s *dulySession) unsettled(ctx context.Context) (int, error) {
	stats, err := s.q.Stats(ctx)
	return stats.Due + stats.Leased + stats.Dead, err
}

func (s *dulySession) batches() bool { return true }

func (s *dulySession) close() error { return s.rdb.Close() }
