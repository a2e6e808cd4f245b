package workertest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dulyhq/duly"
)

// An entry is a task in a source.
type entry struct {
	task      duly.Task
	state     State
	at        time.Time // when it is due, its lease ends, it died, or is forgotten
	due       time.Time // when it was due, of a leased one
	fence     uint64    // of the newest lease
	holds     string    // the lock key of a leased one
	failures  int
	lastError string
	crashes   int
	next      *replacement
	last      bool   // this run, of a leased one that recurs
	cancelled bool   // its run was
	result    []byte // of a done one
	progress  []byte
}

// A replacement takes the place of a running task when that settles.
type replacement struct {
	task duly.Task
	due  time.Time
}

// delivery is an attempt at a leased task.
func (e *entry) delivery(source string, now time.Time) *duly.Delivery {
	return &duly.Delivery{
		Task: copyOf(e.task), Queue: source, Due: e.due, Popped: now,
		Attempt: e.failures + 1, Crashes: e.crashes, Fence: e.fence,
	}
}

// failed counts a failed attempt and keeps its error as a queue does.
func (e *entry) failed(err error) {
	e.failures++
	if e.lastError = ""; err != nil {
		text := err.Error()
		e.lastError = strings.ToValidUTF8(text[:min(len(text), maxError)], "")
	}
}

// renew puts another task in the place of this one.
func (e *entry) renew(task duly.Task) {
	e.task, e.next, e.last = task, nil, false
	e.failures, e.lastError, e.crashes = 0, "", 0
	e.progress = nil
}

// A line holds the tasks of one state by their time, ties by ID, as a sorted set
// of Redis does.
type line []*entry

func order(a, b *entry) int {
	return cmp.Or(a.at.Compare(b.at), strings.Compare(a.task.ID, b.task.ID))
}

func (l *line) add(e *entry) {
	i, _ := slices.BinarySearchFunc(*l, e, order)
	*l = slices.Insert(*l, i, e)
}

func (l *line) remove(e *entry) {
	if i, found := slices.BinarySearchFunc(*l, e, order); found {
		*l = slices.Delete(*l, i, i+1)
	}
}

// waits reports whether the task is due, or will be.
func (e *entry) waits() bool { return e.state == Due || e.state == Parked }

// found is the state that a verb answers: to those that act on due tasks a parked
// one is due.
func (e *entry) found() State {
	if e.waits() {
		return Due
	}
	return e.state
}

// move brings a task into a state. One that is no longer leased lets its lock key
// go.
func (s *Source) move(e *entry, to State, at time.Time) {
	if from := s.states[e.state]; from != nil {
		from.remove(e)
	}
	e.state, e.at, e.cancelled = to, at, e.cancelled && to == Leased
	if to == Missing {
		delete(s.tasks, e.task.ID)
	} else {
		s.tasks[e.task.ID] = e
		s.states[to].add(e)
	}
	if key := e.holds; to != Leased && s.holders[key] == e {
		e.holds = ""
		delete(s.holders, key)
		s.yield(key)
	}
}

// over reports whether nothing is to follow the run of a leased task.
func (e *entry) over() bool { return e.cancelled || e.last }

// replaced makes a task that was leased due as its replacement, and reports
// whether there is one.
func (s *Source) replaced(e *entry) bool {
	next := e.next
	if next == nil {
		return false
	}
	e.renew(next.task)
	s.move(e, Due, next.due)
	return true
}
