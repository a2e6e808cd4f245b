package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// What happens to runs besides that they begin and are done.
const (
	over     = "over"     // a handler that is watched has returned
	released = "released" // the queue has confirmed that it is due again
	denied   = "denied"   // the queue has refused its settlement
	stopped  = "stopped"  // Run has returned
)

// An event is a line in the second file of a worker process. Times are µs.
type event struct {
	What  string `json:"what"`
	ID    string `json:"id,omitempty"`
	Fence uint64 `json:"fence,omitempty"`
	At    int64  `json:"at"`
	Ended bool   `json:"ended,omitempty"` // the handler's context had
	Took  int64  `json:"took,omitempty"`  // from the end of Run's context to its return

	by *hand
}

// An eventLog is like a runLog.
type eventLog struct {
	mu   sync.Mutex
	file *os.File
}

func (l *eventLog) note(e event) error {
	e.At = cmp.Or(e.At, time.Now().UnixMicro())
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n'))
	return err
}

// settled notes what the queue has answered.
func (l *eventLog) settled(ss []duly.Settlement, gone map[*duly.Delivery]bool) error {
	for i := range ss {
		d, what := ss[i].Delivery, ""
		switch {
		case gone[d]:
			what = denied
		case ss[i].Action == duly.Released:
			what = released
		default:
			continue
		}
		if err := l.note(event{What: what, ID: d.ID, Fence: d.Fence}); err != nil {
			return err
		}
	}
	return nil
}

// watched registers handlers that take as long as their payload says, and whose end
// is noted. One obeys its context, the other ignores it.
func (l *eventLog) watched(mux *duly.Mux) {
	handle := func(kind string, work func(context.Context, time.Duration) error) {
		mux.HandleFunc(kind, func(ctx context.Context, d *duly.Delivery) error {
			takes, err := time.ParseDuration(string(d.Payload))
			if err != nil {
				return duly.Bury(err)
			}
			ctx.Done() // what is to end is there before the work begins
			err = work(ctx, takes)
			if noted := l.note(event{What: over, ID: d.ID, Fence: d.Fence, Ended: ctx.Err() != nil}); noted != nil {
				return noted
			}
			return err
		})
	}
	handle("obeys", func(ctx context.Context, takes time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes):
			return nil
		}
	})
	handle("ignores", func(_ context.Context, takes time.Duration) error {
		time.Sleep(takes)
		return nil
	})
}

// events are those that all workers have noted, in the order of their times.
func (c *crew) events() []event {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []event
	for _, h := range c.hired {
		text, err := os.ReadFile(h.runs + ".events")
		if err != nil && !os.IsNotExist(err) {
			c.t.Fatal(err)
		}
		for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
			e := event{by: h}
			must(c.t, json.Unmarshal(line, &e))
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.At, b.At) })
	return all
}

// begun are the runs of each task that began, in the order in which they were popped.
func begun(runs []run) map[string][]run {
	of := make(map[string][]run)
	for _, r := range runs {
		if !r.Acked {
			of[r.ID] = append(of[r.ID], r)
		}
	}
	for _, rs := range of {
		slices.SortStableFunc(rs, func(a, b run) int { return cmp.Compare(a.Popped, b.Popped) })
	}
	return of
}

// rising promises that of each task every run has a higher fence than the one before,
// and that none began after one was done; unless that was in one of the spans.
func (r *report) rising(runs []run, forgets ...span) {
	r.t.Helper()
	done := make(map[string]uint64) // the lowest
	for _, run := range runs {
		if f, ok := done[run.ID]; run.Acked && (!ok || run.Fence < f) && !within(forgets, run.At) {
			done[run.ID] = run.Fence
		}
	}
	flat, after := 0, 0
	for id, rs := range begun(runs) {
		for i, run := range rs {
			if i > 0 && run.Fence <= rs[i-1].Fence {
				flat++
			}
			if f, ok := done[id]; ok && run.Fence > f {
				after++
			}
		}
	}
	r.promise(flat == 0, "%d runs had a fence that was no higher than that of the run before", flat)
	r.promise(after == 0, "%d runs of tasks that an earlier run had done", after)
}

// spread measures the median and the maximum of durations, in ms.
func (r *report) spread(what string, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return math.Round(float64(d.Microseconds())/10) / 100 }
	r.measure(what+", p50, ms", ms(took[len(took)/2]))
	r.measure(what+", max, ms", ms(took[len(took)-1]))
}

// A maker makes the i-th task.
type maker = func(i int) (duly.Task, []queue.EnqueueOption)

// during enqueues tasks at a pace for as long as something is being done.
func (c *crew) during(ts *tries, pace time.Duration, task maker, do func()) {
	const some = 24 // a multiple of any number of queues here
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n += some {
			select {
			case <-stop:
				return
			default:
			}
			c.enqueue(ts, some, pace, func(i int) (duly.Task, []queue.EnqueueOption) { return task(n + i) })
		}
	})
	defer all.Wait()
	defer close(stop)
	do()
}
