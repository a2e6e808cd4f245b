package workertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dulyhq/duly"
)

var togetherCases = []testCase{
	{"two poppers never hold one task", func(r *rig) { r.rush(func(int) string { return "" }) }},
	{"two poppers never hold one lock key", func(r *rig) {
		r.rush(func(i int) string { return fmt.Sprint("key ", i%5) })
	}},
	{"of many that settle a delivery one does", oneSettles},
}

// A ledger is which tasks and lock keys are held, and how often each task was
// delivered.
type ledger struct {
	mu    sync.Mutex
	held  map[string]bool
	runs  map[string]int
	done  int
	wrong []string
}

func (l *ledger) take(d *duly.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range holdings(d) {
		if l.held[what] {
			l.wrong = append(l.wrong, what+" has two holders")
		}
		l.held[what] = true
	}
	if l.runs[d.ID]++; l.runs[d.ID] != d.Attempt {
		l.wrong = append(l.wrong, fmt.Sprintf("delivery %d of task %q is attempt %d", l.runs[d.ID], d.ID, d.Attempt))
	}
}

// holdings is what the holder of a delivery holds.
func holdings(d *duly.Delivery) []string {
	held := []string{fmt.Sprintf("task %q", d.ID)}
	if d.LockKey != "" {
		held = append(held, fmt.Sprintf("lock key %q", d.LockKey))
	}
	return held
}

// give ends a holding and says how: two failures, then success.
func (l *ledger) give(d *duly.Delivery) duly.Settlement {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range holdings(d) {
		l.held[what] = false
	}
	if d.Attempt < 3 {
		return duly.Settlement{Delivery: d, Action: duly.Retried}
	}
	l.done++
	return duly.Settlement{Delivery: d, Action: duly.Acked}
}

func (l *ledger) left(tasks int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done < tasks && len(l.wrong) == 0
}

// rush has poppers race for tasks of the given lock keys until all are done.
func (r *rig) rush(key func(i int) string) {
	const tasks, poppers = 40, 4
	for i := range tasks {
		r.addTask(duly.Task{ID: fmt.Sprint("task ", i), Kind: "kind", LockKey: key(i)}, 0)
	}
	l := &ledger{held: make(map[string]bool), runs: make(map[string]int)}
	var all sync.WaitGroup
	for range poppers {
		all.Go(func() {
			for pauses := time.Duration(0); pauses < patience && l.left(tasks); {
				if !r.work(l) {
					<-time.After(time.Millisecond)
					pauses += time.Millisecond
				}
			}
		})
	}
	all.Wait()
	for _, wrong := range l.wrong {
		r.Error(wrong)
	}
	if l.done != tasks {
		r.Errorf("%d of %d tasks are done", l.done, tasks)
	}
	r.idle()
}

// work pops and settles once, and reports whether there was something. It is
// called from goroutines, where a test cannot end.
func (r *rig) work(l *ledger) bool {
	ds, _, err := r.Source.Pop(r.Context(), 3, long)
	if err != nil || len(ds) == 0 {
		if err != nil {
			r.Errorf("Pop: %v", err)
		}
		return false
	}
	batch := make([]duly.Settlement, len(ds))
	for _, d := range ds {
		l.take(d)
	}
	<-time.After(time.Millisecond) // the others pop meanwhile
	for i, d := range ds {
		batch[i] = l.give(d)
	}
	if lost, err := r.Source.Settle(r.Context(), batch); err != nil || len(lost) > 0 {
		r.Errorf("Settle loses %q, which are held: %v", idsOf(lost), err)
	}
	return true
}

func oneSettles(r *rig) {
	states := map[duly.Action]State{duly.Acked: Missing, duly.Buried: Dead, duly.Retried: Due}
	for i := range 5 {
		id := fmt.Sprint("task ", i)
		r.add(0, id)
		d := r.take(id, long)
		var all sync.WaitGroup
		var winners atomic.Int32
		var winner atomic.Value
		for action := range states {
			for range 2 {
				all.Go(func() {
					lost, err := r.Source.Settle(r.Context(), []duly.Settlement{{Delivery: d, Action: action, In: long}})
					if err != nil {
						r.Errorf("Settle: %v", err)
					} else if len(lost) == 0 {
						winners.Add(1)
						winner.Store(action)
					}
				})
			}
		}
		all.Wait()
		if winners.Load() != 1 {
			r.Fatalf("%d of 6 calls settled one delivery", winners.Load())
		}
		if action, ok := winner.Load().(duly.Action); ok {
			r.want(states[action], id)
		}
	}
}
