package chaos

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// Redis is at its memory limit: new tasks are refused, and those that it has are run.
func TestAFullRedisRefusesAndDrains(t *testing.T) {
	r := begin(t, "memory limit")
	tasks, more := pick(2000, 20_000, 500_000), pick(200, 1000, 10_000)
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	c := r.assemble(process{Redis: place{Socket: server.Socket}, Slots: 16, Lease: time.Second})
	ctx, ts := t.Context(), newTries()
	must(t, c.Pause(ctx))
	batch := make([]duly.Task, 0, 500)
	for i := range tasks {
		task, _ := r.mixed(i)
		if batch = append(batch, task); len(batch) == cap(batch) || i == tasks-1 {
			_, err := c.EnqueueMany(ctx, batch)
			must(t, err)
			for _, task := range batch {
				ts.note(task.ID, nil)
			}
			batch = batch[:0]
		}
	}
	limit := func(bytes string) {
		must(t, c.rdb.ConfigSet(ctx, "maxmemory", bytes).Err())
		r.fault("limit set", 1)
	}
	refusals := func(from int) {
		for i := range more {
			task, _ := r.mixed(from + i)
			_, err := c.Enqueue(ctx, task)
			ts.note(task.ID, err)
			if !errors.Is(err, queue.ErrFull) || errors.Is(err, queue.ErrUnknownOutcome) {
				r.broken("a full Redis has answered %v", err)
				return
			}
		}
	}
	limit("500kb") // less than an empty Redis takes
	refusals(tasks)
	must(t, c.Resume(ctx))
	hands := []*hand{c.mustHire(), c.mustHire()}
	began := time.Now()
	refusals(tasks + more)
	c.finish(hands, 2*time.Minute)
	r.measure("drained after, s", time.Since(began).Seconds())
	refusals(tasks + 2*more)
	r.promise(c.pending() == 0, "%d tasks are there after all were done", c.pending())

	must(t, c.rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	c.enqueue(ts, more, time.Millisecond, func(i int) (duly.Task, []queue.EnqueueOption) { return r.mixed(tasks + 3*more + i) })
	c.drain(2, time.Minute)
	total := ts.count(c.runs(), attempts)
	r.clean(total)
	r.promise(total.Refused == 3*more, "%d calls were refused, want %d", total.Refused, 3*more)
	r.promise(total.Acked == tasks+more, "%d tasks were confirmed, want %d", total.Acked, tasks+more)
	said := c.said()
	r.promise(len(said) == 0, "workers have logged %.300s", fmt.Sprint(said))
	stats, err := c.Stats(ctx)
	must(t, err)
	r.promise(stats.Dead == 0, "%d tasks are dead", stats.Dead)
}
