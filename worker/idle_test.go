package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// An odometer counts the commands of clients, pings too.
type odometer struct{ sent atomic.Int64 }

func (m *odometer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *odometer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		m.sent.Add(1)
		return next(ctx, cmd)
	}
}

func (m *odometer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		m.sent.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// counted returns what makes queues of one name, each with a client of its own.
func counted(t *testing.T) (*odometer, func() *queue.Queue) {
	t.Helper()
	dial := redistest.Virtual(t)
	m := new(odometer)
	return m, func() *queue.Queue {
		client := dial()
		client.AddHook(m)
		q, err := queue.New(client, "q", queue.Config{})
		must(t, err)
		return q
	}
}

func TestAnIdleWorkerSendsACommandIn2SecondsAtMost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		m, open := counted(t)
		q := open()
		_, err := q.Enqueue(t.Context(), duly.Task{Kind: "k"}, queue.In(24*time.Hour))
		must(t, err)
		launch(t, done, worker.Config{}, q)
		pass(time.Minute)
		before := m.sent.Load()
		pass(10 * time.Minute)
		sent := m.sent.Load() - before
		t.Logf("%d commands in 10 min", sent)
		if sent > 300 {
			t.Errorf("%d commands in 10 min, over 300", sent)
		}
	})
}

// Each of a hundred workers asks once when a task falls due, not also when it is
// enqueued, and not again for what another got.
func TestAHundredIdleWorkersAskOnceATask(t *testing.T) {
	virtual(t, func(t *testing.T) {
		m, open := counted(t)
		const workers, tasks = 100, 50
		j := new(journal)
		for range workers {
			launch(t, handler(j.note), worker.Config{}, open())
		}
		q := open()
		pass(time.Minute)
		before := m.sent.Load()
		began := time.Now()
		for i := range tasks {
			_, err := q.Enqueue(t.Context(), duly.Task{ID: fmt.Sprint(i), Kind: "k"}, queue.In(500*time.Millisecond))
			must(t, err)
			pass(100 * time.Millisecond)
		}
		pass(time.Second)
		sent := m.sent.Load() - before
		took := time.Since(began)
		idle := int64(workers * (took/(5*time.Second) + 1))
		most := int64(tasks*(workers+2)) + idle // each pops; one enqueues, one settles
		t.Logf("%d commands for %d tasks in %v", sent, tasks, took)
		if sent > most {
			t.Errorf("%d commands for %d tasks, over %d", sent, tasks, most)
		}
		if n := len(j.all()); n != tasks {
			t.Errorf("%d of %d tasks ran", n, tasks)
		}
	})
}
