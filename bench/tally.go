package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// errLost says that tasks did not run.
var errLost = errors.New("tasks have not run")

// A tally is the handler of every measurement: it notes when each task began,
// and whether all of them ran.
type tally struct {
	pause time.Duration // what the handler takes
	runs  []atomic.Int32
	began []time.Time // by task number; written by the first run of each
	place []int64     // the how-manieth to begin, from 1
	next  atomic.Int64
	left  atomic.Int64
	stray atomic.Int64 // tasks that were not due, or not ours
	again atomic.Int64 // runs of a task that had run
	ended atomic.Pointer[time.Time]
	done  chan struct{} // closed when every task has run
}

func newTally(n int, pause time.Duration) *tally {
	t := &tally{
		pause: pause, runs: make([]atomic.Int32, n), began: make([]time.Time, n), place: make([]int64, n),
		done: make(chan struct{}),
	}
	t.left.Store(int64(n))
	return t
}

func (t *tally) handle(id string) {
	now := time.Now()
	n := taskNumber(id)
	if n < 0 || n >= len(t.runs) {
		t.stray.Add(1)
		return
	}
	first := t.runs[n].Add(1) == 1
	if first {
		t.began[n], t.place[n] = now, t.next.Add(1)
	} else {
		t.again.Add(1)
	}
	if t.pause > 0 {
		time.Sleep(t.pause)
	}
	if first && t.left.Add(-1) == 0 {
		end := time.Now()
		t.ended.Store(&end)
		close(t.done)
	}
}

// wait waits until every task has run. If that takes longer than most, they
// count as lost.
func (t *tally) wait(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%w: %d of %d after %v", errLost, t.left.Load(), len(t.runs), most)
	}
	if n := t.stray.Load(); n > 0 {
		return fmt.Errorf("%d tasks ran that were not due", n)
	}
	return nil
}

// first is when the first task began. All must have run.
func (t *tally) first() time.Time {
	for i, place := range t.place {
		if place == 1 {
			return t.began[i]
		}
	}
	return time.Time{}
}
