package chaos

import (
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock/redistest"
)

// Workers are killed at random instants while tasks come in, and others are hired in
// their place.
func TestKilledWorkersLoseNothing(t *testing.T) {
	r := begin(t, "workers killed")
	tasks, kills := pick(1000, 20_000, 200_000), pick(60, 1000, 10_000)
	server := redistest.Start(t)
	c := r.assemble(process{Redis: place{Socket: server.Socket}, Slots: 4, Lease: 500 * time.Millisecond, MaxCrashes: 1_000_000})
	ts := newTries()
	moments := make(chan time.Duration, kills)
	for range kills {
		moments <- time.Duration(5+r.rnd.IntN(40)) * time.Millisecond
	}
	close(moments)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for after := range moments {
				h, err := c.hire()
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(after)
				h.kill()
				r.fault("kill", 1)
			}
		})
	}
	c.enqueue(ts, tasks, time.Millisecond, r.mixed)
	all.Wait()
	c.drain(2, time.Minute)

	total := ts.count(c.runs(), attempts)
	r.clean(total)
	r.promise(total.Acked == tasks, "%d of %d tasks were acknowledged, and Redis was there all the time", total.Acked, tasks)
	r.promise(total.Reruns <= kills*4, "%d reruns by %d kills of 4 slots", total.Reruns, kills)
}
