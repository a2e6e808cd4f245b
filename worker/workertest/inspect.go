package workertest

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// A State is where a task stands in its source.
type State string

// The states.
const (
	Missing State = "missing" // never there, or ended and not kept
	Due     State = "due"     // waits for its due time, or for a worker
	Parked  State = "parked"  // due, and waits for its lock key
	Leased  State = "leased"  // handed out
	Dead    State = "dead"    // in the dead letter
	Done    State = "done"    // done, and kept for as long as it asked for
)

// An Info shows a task as it stands in a source.
type Info struct {
	duly.Task

	// State is Due, Parked, Leased, Dead or Done; Missing if there is no such task.
	State State

	// At is when a due or parked task may run, a leased one's lease ends, a dead one
	// died, or a done one is forgotten.
	At time.Time

	// Failures counts the attempts that failed, LastError is the last one's
	// error, and Crashes the leases in a row that ran out.
	Failures  int
	LastError string
	Crashes   int

	// Replacement is when the task is due that will take this leased one's
	// place; zero if there is none.
	Replacement time.Time

	// Result is what a done task has brought, Progress what a handler reported last,
	// both JSON; nil without.
	Result, Progress []byte
}

func (e *entry) info() Info {
	info := Info{
		Task: copyOf(e.task), State: e.state, At: e.at,
		Failures: e.failures, LastError: e.lastError, Crashes: e.crashes,
		Result: bytes.Clone(e.result), Progress: bytes.Clone(e.progress),
	}
	if e.next != nil {
		info.Replacement = e.next.due
	}
	return info
}

// Stats counts the tasks of a source.
type Stats struct {
	// Now is the source's clock.
	Now time.Time

	// Due counts the tasks that wait, Parked those of them that wait for their
	// lock key, and Ready those that could run now.
	Due, Parked, Ready int

	// Leased, Dead and Done count the tasks handed out, in the dead letter, and kept
	// though they are done.
	Leased, Dead, Done int
}

// Get shows the task of an ID. That there is none is an Info with the state
// Missing, not an error.
func (s *Source) Get(ctx context.Context, id string) (Info, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return Info{}, s.wrap("get from", err)
	}
	defer end()
	if e := s.tasks[id]; e != nil {
		return e.info(), nil
	}
	return Info{Task: duly.Task{ID: id}, State: Missing}, nil
}

// Peek shows the first n tasks that are due or will be, the next to be popped
// first, without taking them; parked ones it leaves out. n is 1 to 1,000.
func (s *Source) Peek(ctx context.Context, n int) ([]Info, error) {
	return s.List(ctx, Due, 0, n)
}

// List shows tasks of a state by their At, the earliest first: limit of them, 1
// to 1,000, after leaving out offset.
func (s *Source) List(ctx context.Context, state State, offset, limit int) ([]Info, error) {
	if s.states[state] == nil || offset < 0 || limit < 1 || limit > maxPage {
		return nil, s.wrap("list", fmt.Errorf("%w: %d of state %q after %d", worker.ErrInvalid, limit, state, offset))
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, s.wrap("list", err)
	}
	defer end()
	all := *s.states[state]
	page := all[min(offset, len(all)):min(offset+limit, len(all))]
	infos := make([]Info, len(page))
	for i, e := range page {
		infos[i] = e.info()
	}
	return infos, nil
}

// Stats counts the source's tasks.
func (s *Source) Stats(ctx context.Context) (Stats, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return Stats{}, s.wrap("stats of", err)
	}
	defer end()
	due, parked := *s.states[Due], len(*s.states[Parked])
	stats := Stats{
		Now: s.now(), Due: len(due) + parked, Parked: parked,
		Leased: len(*s.states[Leased]), Dead: len(*s.states[Dead]), Done: len(*s.states[Done]),
	}
	for stats.Ready < len(due) && !due[stats.Ready].at.After(stats.Now) {
		stats.Ready++
	}
	return stats, nil
}
