package chaos

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// Some tasks kill the worker that runs them. Each does so three times and is dead then;
// all others are done, whomever they ran beside. What counts is leases that run out: a
// poison that is taken along by another before its run begins kills one worker fewer.
func TestPoisonIsBuried(t *testing.T) {
	r := begin(t, "poison")
	tasks, poisons := pick(300, 2000, 20_000), pick(4, 15, 200)
	const chances = 3 // the default of queues
	server := redistest.Start(t)
	c := r.assemble(process{Redis: place{Socket: server.Socket}, Slots: 4, Lease: 500 * time.Millisecond})
	ts := newTries()
	every := tasks / poisons
	next := func(i int) (duly.Task, []queue.EnqueueOption) {
		if i%every == every/2 && i/every < poisons {
			return duly.Task{ID: fmt.Sprintf("poison-%06d", i), Kind: "poison"}, nil
		}
		return r.mixed(i)
	}
	var all sync.WaitGroup
	ended := make(chan struct{})
	stop := sync.OnceFunc(func() {
		close(ended)
		all.Wait()
	})
	t.Cleanup(stop)
	for range 3 {
		all.Go(func() { c.keepHired(ended) })
	}
	c.enqueue(ts, tasks, time.Millisecond, next)
	eventually(t, "nothing is left to run", 5*time.Minute, func() bool { return c.pending() == 0 })
	stop()

	poison := func(id string) bool { return strings.HasPrefix(id, "poison") }
	runs, ran := c.runs(), make(map[string]int)
	for _, one := range runs {
		if poison(one.ID) {
			r.promise(!one.Acked, "%s ended as done", one.ID)
			ran[one.ID]++
		}
	}
	total := ts.count(runs, func(id string) int {
		if poison(id) {
			return chances
		}
		return attempts(id)
	})
	r.clean(total)
	r.promise(total.Acked == tasks, "%d of %d tasks were confirmed", total.Acked, tasks)
	r.promise(len(ran) == poisons, "%d poisons ran, of %d", len(ran), poisons)
	spared := 0
	for id, n := range ran {
		r.promise(n <= chances, "%s ran %d times", id, n)
		spared += chances - n
		info, err := c.Get(t.Context(), id)
		r.promise(err == nil && info.State == queue.Dead, "%s is %s: %v", id, info.State, err)
	}
	r.promise(spared <= 1+poisons*chances/20, "%d of %d runs of poisons have not been", spared, poisons*chances)
	r.measure("poisons taken along before their run, leases", float64(spared))
	stats, err := c.Stats(t.Context())
	must(t, err)
	r.promise(stats.Dead == poisons, "%d tasks are dead, of %d poisons", stats.Dead, poisons)
	r.promise(stats.Counters["ack"] == int64(tasks-poisons), "%d tasks are done, of %d", stats.Counters["ack"], tasks-poisons)
}

// keepHired hires a worker process whenever one ends.
func (c *crew) keepHired(ended chan struct{}) {
	for {
		h, err := c.hire()
		if err != nil {
			c.broken("a worker could not be hired: %v", err)
			return
		}
		select {
		case <-h.ended:
			c.fault("worker killed by its task", 1)
		case <-ended:
			h.stop()
			return
		}
	}
}
