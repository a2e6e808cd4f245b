package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// Workers are stopped under load, and others are hired in their place. Of the tasks,
// some outlast the time to drain, and obey their context then or ignore it.
func TestStoppedWorkersEndInTime(t *testing.T) {
	const drain, lanes = 120 * time.Millisecond, 3
	r := begin(t, "workers stopped")
	stops := pick(10, 200, 5000)
	server := redistest.Start(t)
	c := r.assemble(process{Redis: place{Socket: server.Socket}, Slots: 8, Lease: 5 * time.Second, Drain: drain})
	ts := newTries()
	moments := make(chan time.Duration, stops)
	for range stops {
		moments <- time.Duration(150+r.rnd.IntN(300)) * time.Millisecond
	}
	close(moments)
	var ends []*hand
	var mu sync.Mutex // guards ends
	rest := []*hand{c.mustHire(), c.mustHire()}
	c.during(ts, 8*time.Millisecond, r.lasting(600*time.Millisecond), func() {
		var all sync.WaitGroup
		defer all.Wait()
		for range lanes {
			all.Go(func() {
				for after := range moments {
					h, err := c.hire()
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(after)
					if _, status := h.stop(); status != 0 {
						r.broken("a worker that was stopped ended with status %d", status)
					}
					r.fault("stop", 1)
					mu.Lock()
					ends = append(ends, h)
					mu.Unlock()
				}
			})
		}
	})
	c.drain(1, time.Minute)
	for _, h := range rest {
		h.stop()
	}

	runs := c.runs()
	total := ts.count(runs, once)
	r.clean(total)
	r.rising(runs)
	r.promise(total.Acked == total.Attempts, "%d of %d tasks were acknowledged, and Redis was there all the time", total.Acked, total.Attempts)
	burned := 0
	for _, run := range runs {
		if run.Attempt != 1 || run.Crashes != 0 {
			burned++
		}
	}
	r.promise(burned == 0, "%d runs had an attempt or a crash counted before them, and none failed", burned)
	c.stopsInTime(ends, drain)
	c.releasesRunSoon(ends)
}

// lasting makes tasks of 5 to 200 ms, and in eight one that may take more. Half of them
// ignore their context.
func (r *report) lasting(most time.Duration) maker {
	return func(i int) (duly.Task, []queue.EnqueueOption) {
		r.mu.Lock()
		defer r.mu.Unlock()
		takes := 5*time.Millisecond + time.Duration(r.rnd.Int64N(int64(195*time.Millisecond)))
		if r.rnd.IntN(8) == 0 {
			takes = 200*time.Millisecond + time.Duration(r.rnd.Int64N(int64(most-200*time.Millisecond)))
		}
		kind := []string{"obeys", "ignores"}[r.rnd.IntN(2)]
		return duly.Task{ID: fmt.Sprintf("%s-%06d", kind, i), Kind: kind, Payload: []byte(takes.String())}, nil
	}
}

// stopsInTime promises that Run returned within the time to drain and 100 ms. A handler
// that ignored its context beyond that is waited for; the 100 ms begin then.
func (c *crew) stopsInTime(ends []*hand, drain time.Duration) {
	c.t.Helper()
	last, stops := make(map[*hand]int64), make(map[*hand]event)
	for _, e := range c.events() {
		switch e.What {
		case over:
			if e.ID[0] == 'i' { // ignores
				last[e.by] = e.At
			}
		case stopped:
			stops[e.by] = e
		}
	}
	beyond := make([]time.Duration, 0, len(ends))
	full, waited, begun, tooLong := 0, 0, 0, 0
	for _, h := range ends {
		e, ok := stops[h]
		if !ok {
			c.broken("a worker that was stopped did not return from Run")
			continue
		}
		allowed := drain
		if stubborn := time.Duration(last[h]-e.At) * time.Microsecond; stubborn > drain {
			allowed = stubborn
			waited++
		}
		took := time.Duration(e.Took) * time.Microsecond
		if took >= drain {
			full++
		}
		late := took - allowed
		if late > 100*time.Millisecond {
			tooLong++
		}
		beyond = append(beyond, late)
		for _, run := range h.noted(c.t) {
			if !run.Acked && run.At > e.At+100_000 { // the clock is read before the line is written
				begun++
			}
		}
	}
	c.promise(tooLong == 0, "%d of %d stops took 100 ms more than was allowed", tooLong, len(ends))
	c.promise(begun == 0, "%d runs began when their worker had been told to stop", begun)
	c.spread("stop beyond what was allowed", beyond)
	c.measure("stops that took all the time to drain", float64(full))
	c.measure("stops that a handler held up by ignoring its context", float64(waited))
}

// releasesRunSoon promises that what a stopping worker released runs within a second.
func (c *crew) releasesRunSoon(ends []*hand) {
	c.t.Helper()
	stops := make(map[*hand]int64)
	events := c.events()
	for _, e := range events {
		if e.What == stopped {
			stops[e.by] = e.At
		}
	}
	of := begun(c.runs())
	wanted := make(map[*hand]bool)
	for _, h := range ends {
		wanted[h] = true
	}
	var waits []time.Duration
	never := 0
	for _, e := range events {
		if e.What != released || !wanted[e.by] || e.At < stops[e.by] {
			continue
		}
		ran := false
		for _, run := range of[e.ID] {
			if run.Fence > e.Fence {
				ran = true
				// A run may be noted before the worker that released its task has been answered.
				waits = append(waits, max(time.Duration(run.At-e.At)*time.Microsecond, 0))
				break
			}
		}
		if !ran {
			never++
		}
	}
	c.promise(never == 0, "%d tasks that were released never ran again", never)
	c.promise(len(waits) > 0, "no stop released a task, so nothing was shown of that")
	c.spread("released until it runs", waits)
	late := 0
	for _, wait := range waits {
		if wait > time.Second {
			late++
		}
	}
	c.promise(late == 0, "%d of %d tasks that were released ran after more than a second", late, len(waits))
	c.measure("tasks released by stops", float64(len(waits)))
}
