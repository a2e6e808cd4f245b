package chaos

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// Redis forgets its scripts at random moments, as after a failover. Nobody notices:
// no call fails, nothing happens twice, and no worker logs anything.
func TestScriptFlushesAreInvisible(t *testing.T) {
	r := begin(t, "script flush")
	tasks, pace := pick(1500, 15_000, 300_000), time.Millisecond
	server := redistest.Start(t)
	c := r.assemble(process{Redis: place{Socket: server.Socket}, Slots: 8})
	hands := []*hand{c.mustHire(), c.mustHire()}
	ts := newTries()
	ended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { r.flush(server.Client(), ended) })
	asked := 0
	all.Go(func() { asked = c.ask(ended) })
	stop := sync.OnceFunc(func() {
		close(ended)
		all.Wait()
	})
	t.Cleanup(stop)
	c.enqueue(ts, tasks, pace, r.mixed)
	c.finish(hands, time.Minute)
	stop()

	total := ts.count(c.runs(), attempts)
	r.clean(total)
	r.promise(total.Acked == tasks, "%d of %d tasks were confirmed", total.Acked, tasks)
	r.promise(total.Reruns == 0, "%d runs were too many", total.Reruns)
	said := c.said()
	r.promise(len(said) == 0, "workers have logged %.300s", fmt.Sprint(said))
	stats, err := c.Stats(t.Context())
	must(t, err)
	took, done := stats.Counters["enqueued"], stats.Counters["ack"]
	r.promise(took == int64(tasks+asked) && done == int64(tasks), "%d tasks were taken and %d are done, of %d", took, done, tasks+asked)
	r.measure("other verbs, calls", float64(asked*6))
}

// flush forgets all scripts again and again.
func (r *report) flush(rdb *redis.Client, ended chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Duration(r.roll(20)) * time.Millisecond):
			if err := rdb.ScriptFlush(r.t.Context()).Err(); err != nil {
				r.broken("a flush failed: %v", err)
				return
			}
			r.fault("script flush", 1)
		}
	}
}

// ask calls verbs that do not belong to the load, on a task of their own at a time,
// and returns on how many.
func (c *crew) ask(ended chan struct{}) (tasks int) {
	for ; ; tasks++ {
		select {
		case <-ended:
			return tasks
		case <-time.After(2 * time.Millisecond):
		}
		if err := c.askOf(fmt.Sprintf("asked-%d", tasks)); err != nil {
			c.broken("a caller got the error %v", err)
			return tasks
		}
	}
}

// askOf calls verbs on a task that is not run.
func (c *crew) askOf(id string) error {
	ctx := c.t.Context()
	_, err := c.Enqueue(ctx, duly.Task{ID: id, Kind: "quick"}, queue.In(time.Hour))
	moved, failed := c.Reschedule(ctx, id, queue.In(2*time.Hour))
	err = errors.Join(err, failed)
	info, failed := c.Get(ctx, id)
	err = errors.Join(err, failed)
	_, failed = c.Peek(ctx, 3)
	err = errors.Join(err, failed)
	_, failed = c.Stats(ctx)
	err = errors.Join(err, failed)
	cancelled, failed := c.Cancel(ctx, id)
	err = errors.Join(err, failed)
	if err == nil && (moved != queue.Due || info.State != queue.Due || cancelled != queue.Due) {
		err = fmt.Errorf("%s was %s, %s and %s, and due all the time", id, moved, info.State, cancelled)
	}
	return err
}
