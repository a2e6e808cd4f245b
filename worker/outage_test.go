package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// A meter counts what a client does.
type meter struct{ calls, dials atomic.Int64 }

func (m *meter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		m.dials.Add(1)
		return next(ctx, network, addr)
	}
}

func (m *meter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		m.calls.Add(1)
		return next(ctx, cmd)
	}
}

func (m *meter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// metered returns a queue on a client of its own, and the meter of that.
func metered(t *testing.T, s *redistest.Server) (*queue.Queue, *meter) {
	t.Helper()
	client, m := s.Client(), new(meter)
	client.AddHook(m)
	q, err := queue.New(client, "tasks", queue.Config{})
	must(t, err)
	return q, m
}

// said counts the lines about the source being away, and being back.
func said(logs *observer.ObservedLogs) (down, up int) {
	return logs.FilterMessage("source does not answer, trying on").Len(), logs.FilterMessage("source answers again").Len()
}

// pour enqueues a task every 2 ms until it is stopped.
func pour(q *queue.Queue) (stop func() enqueued) {
	var load sync.WaitGroup
	all, ended := make(enqueued), make(chan struct{})
	load.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			id := fmt.Sprintf("task-%05d", i)
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			_, err := q.Enqueue(ctx, duly.Task{ID: id, Kind: "k"})
			cancel()
			all[id] = err == nil
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	})
	return func() enqueued {
		close(ended)
		load.Wait()
		return all
	}
}

// outage kills Redis for a while, starts it again, and waits for the worker. It
// checks what the worker, whose calls m counts, does meanwhile and how soon it is
// back.
func outage(t *testing.T, s *redistest.Server, m *meter, j *journal, away time.Duration) {
	t.Helper()
	s.Kill()
	time.Sleep(100 * time.Millisecond) // calls that were on their way have failed
	calls, dials := m.calls.Load(), m.dials.Load()
	time.Sleep(away)
	calls, dials = m.calls.Load()-calls, m.dials.Load()-dials
	if most := int64(10 + 4*away.Seconds()); calls > most {
		t.Errorf("%d calls in %v of outage, want at most %d", calls, away, most)
	}
	ran := len(j.all())
	s.Restart()
	back := time.Now()
	eventually(t, "tasks run again", 10*time.Second, func() bool { return len(j.all()) > ran })
	took := time.Since(back)
	within(t, "the worker was back after", took, 0, 2*time.Second)
	t.Logf("%d calls and %d dials in an outage of %v; back after %v", calls, dials, away, took.Round(time.Millisecond))
}

// Redis is killed and started again under load, three times. Nothing that it had
// confirmed is lost; the worker waits without a hot loop, is back within 2 s, and
// says it in one line down and one up.
func TestRedisIsKilledAndRestartedUnderLoad(t *testing.T) {
	t.Parallel()
	outages, away := 3, 2500*time.Millisecond
	if testing.Short() {
		outages, away = 1, time.Second
	}
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always") // else a busy disk delays the write beyond the reply
	producer, _ := metered(t, s)
	q, m := metered(t, s)
	logger, logs := observe()
	j := new(journal)
	w := launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
		_ = j.note(ctx, d)
		time.Sleep(2 * time.Millisecond)
		return nil
	}), worker.Config{Concurrency: 8, Lease: 2 * time.Second, Logger: logger}, q)

	stop := pour(producer)
	for range outages {
		time.Sleep(500 * time.Millisecond)
		outage(t, s, m, j, away)
	}
	time.Sleep(500 * time.Millisecond)
	confirmed := stop()
	var stats queue.Stats
	eventually(t, "all tasks are done", 20*time.Second, func() bool {
		var err error
		stats, err = producer.Stats(t.Context())
		return err == nil && stats.Due+stats.Leased == 0
	})
	seen := make(map[string]bool)
	for _, e := range j.all() {
		seen[e.ID] = true
	}
	acked := 0
	for id, is := range confirmed {
		if is {
			acked++
		}
		if is && !seen[id] {
			t.Errorf("%s was lost", id)
		}
	}
	if n := stats.Counters["ack"]; n != int64(len(seen)) || stats.Dead != 0 {
		t.Errorf("%d acks of %d tasks, %d dead", n, len(seen), stats.Dead)
	}
	if down, up := said(logs); down != outages || up != outages {
		t.Errorf("%d lines down and %d up for %d outages: %v", down, up, outages, logs.All())
	}
	t.Logf("attempts %d, acked %d, done %d, runs %d; worker %+v", len(confirmed), acked, len(seen), len(j.all()), w.Stats())
}

// Redis hangs for longer than a lease. The handler is told before another could
// have its task, which runs again when Redis is back.
func TestRedisHangsForLongerThanALease(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	s := redistest.Start(t)
	q, _ := metered(t, s)
	logger, logs := observe()
	told := make(chan error, 10)
	j := new(journal)
	launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
		if j.add(d); d.Crashes > 0 {
			return nil
		}
		<-ctx.Done()
		told <- context.Cause(ctx)
		return ctx.Err()
	}), worker.Config{Lease: lease, Concurrency: 4, Logger: logger}, q)
	for i := range 4 {
		_, err := q.Enqueue(t.Context(), duly.Task{ID: fmt.Sprint(i), Kind: "k"})
		must(t, err)
	}
	eventually(t, "all run", 5*time.Second, func() bool { return len(j.all()) == 4 })
	time.Sleep(2 * lease)

	s.Signal(syscall.SIGSTOP)
	hung := time.Now()
	for range 4 {
		wants(t, <-told, duly.ErrLeaseLost)
	}
	within(t, "handlers were told after", time.Since(hung), lease/2, lease)
	time.Sleep(3*lease - time.Since(hung))
	s.Signal(syscall.SIGCONT)
	back := time.Now()
	eventually(t, "all run again", 10*time.Second, func() bool { return len(j.all()) >= 8 })
	within(t, "the worker was back after", time.Since(back), 0, 2*time.Second)
	eventually(t, "all are done", 10*time.Second, func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats.Due+stats.Leased == 0 && stats.Counters["ack"] == 4
	})
	if down, up := said(logs); down != 1 || up != 1 {
		t.Errorf("%d lines down and %d up for one outage: %v", down, up, logs.All())
	}
}

// A worker can be stopped while Redis hangs. It waits for as long as it was told
// to, and not for the server.
func TestStopWhileRedisHangs(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	q, _ := metered(t, s)
	w := launch(t, done, worker.Config{Lease: time.Second, CancelTimeout: time.Second}, q)
	_, err := q.Enqueue(t.Context(), duly.Task{Kind: "k"})
	must(t, err)
	eventually(t, "the task is done", 5*time.Second, func() bool { return w.Stats().Acked == 1 })
	s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	time.Sleep(1500 * time.Millisecond)
	began := time.Now()
	w.stop()
	within(t, "Run returned after", time.Since(began), 0, 2*time.Second)
}

// A worker that starts before its Redis does waits for it.
func TestWorkerStartsBeforeRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	q, _ := metered(t, s)
	logger, logs := observe()
	w := launch(t, done, worker.Config{Logger: logger}, q)
	eventually(t, "it says so", 5*time.Second, func() bool { down, _ := said(logs); return down == 1 })
	s.Restart()
	_, err := q.Enqueue(t.Context(), duly.Task{Kind: "k"})
	if !errors.Is(err, queue.ErrUnknownOutcome) { // a connection may have died with the server
		must(t, err)
	}
	eventually(t, "the task is done", 5*time.Second, func() bool { return w.Stats().Acked == 1 })
	eventually(t, "it says so", 5*time.Second, func() bool { _, up := said(logs); return up == 1 })
}
