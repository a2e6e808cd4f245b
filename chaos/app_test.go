package chaos

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dulyhq/duly/queue"
)

// An app is a program that enqueues in a loop of its own.
type app struct {
	*crew
	ts     *tries
	within time.Duration // that a call may take
	quit   chan struct{}
	ended  sync.WaitGroup

	mu   sync.Mutex // guards what follows
	over []time.Duration
	last time.Time // that one was confirmed
}

// employ starts an app on the Redis of a place. Its calls are a pace apart, and none
// waits for another.
func (c *crew) employ(ts *tries, at place, pace, within time.Duration) *app {
	c.t.Helper()
	rdb := at.dial()
	q, err := queue.New(rdb, queueName, queue.Config{})
	must(c.t, err)
	a := &app{crew: c, ts: ts, within: within, quit: make(chan struct{})}
	a.ended.Go(func() {
		defer func() { _ = rdb.Close() }()
		var calls sync.WaitGroup
		defer calls.Wait()
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := 0; ; i++ {
			calls.Go(func() { a.call(q, i) })
			select {
			case <-tick.C:
			case <-a.quit:
				return
			}
		}
	})
	return a
}

func (a *app) call(q *queue.Queue, i int) {
	task, opts := a.mixed(i)
	task.ID, task.Kind = "task-"+task.ID, "quick" // a failed attempt is a line in the log
	ctx, cancel := context.WithTimeout(context.Background(), a.within)
	defer cancel()
	late := lateness(ctx)
	_, err := q.Enqueue(ctx, task, opts...)
	over, now := late(), time.Now()
	a.ts.note(task.ID, err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = append(a.over, over)
	if err == nil {
		a.last = now
	}
}

// lateness returns what tells how long ago a context has ended, as a goroutine on this
// machine could have noticed.
func lateness(ctx context.Context) func() time.Duration {
	var ended atomic.Int64 // ns since began
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { ended.Store(int64(time.Since(began))) })
	return func() time.Duration {
		if stop() || ended.Load() == 0 {
			return 0
		}
		return time.Since(began) - time.Duration(ended.Load())
	}
}

// dismiss has the app end, and judges whether its calls ended in time.
func (a *app) dismiss() {
	close(a.quit)
	a.ended.Wait()
	slices.Sort(a.over)
	late := a.over[len(a.over)*99/100]
	a.measure("calls beyond their deadline, p99 ms", ms(late))
	a.measure("calls beyond their deadline, max ms", ms(a.over[len(a.over)-1]))
	a.promise(late <= 100*time.Millisecond, "one call in a hundred returned %v beyond its deadline", late)
}

// popped is when the task was handed out, by the server's clock, that a worker has noted
// last.
func (c *crew) popped(h *hand) (last time.Time) {
	file, err := os.Open(h.runs)
	if err != nil {
		return last
	}
	defer func() { _ = file.Close() }()
	if _, err = file.Seek(-4096, io.SeekEnd); err != nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	must(c.t, err)
	text, err := io.ReadAll(file)
	must(c.t, err)
	text = text[bytes.IndexByte(text, '\n')+1:] // the first may be half a line
	for _, r := range readRuns(c.t, text) {
		if at := time.UnixMicro(r.Popped); at.After(last) {
			last = at
		}
	}
	return last
}

// resumed waits until every worker has popped after a time, and the app, if there is
// one, has enqueued. It returns how long after that time the last of them did.
func (c *crew) resumed(since time.Time, a *app, hands ...*hand) (took time.Duration) {
	c.t.Helper()
	eventually(c.t, "all work again", 30*time.Second, func() bool {
		for _, h := range hands {
			at := c.popped(h)
			if at.Before(since) {
				return false
			}
		}
		if a != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.last.After(since)
		}
		return true
	})
	return time.Since(since)
}
