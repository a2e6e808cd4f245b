package queue_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A span is when something happened or will, in µs of the server's clock: at a
// known moment if both are the same, else somewhere between.
type span struct{ lo, hi int64 }

func (s span) add(d time.Duration) span {
	return span{s.lo + d.Microseconds(), s.hi + d.Microseconds()}
}

// A model is what a queue is meant to be, without Redis.
type model struct {
	tasks   map[string]*modelTask
	app     map[string]int64 // lock key -> until when the application has it, µs
	limit   int              // crashes in a row that bury
	paused  bool
	limits  queue.Limits
	tat     int64    // of the rate: when the next task was to come if they came at it, ns
	fence   uint64   // the last given
	unheard []string // IDs that a pop leased whose reply was lost

	suspect  string // the ID on trial, whose lease has the fence
	tried    uint64 // zero if the pop is yet to be given one
	trialEnd span

	ends map[string]string // how tasks have ended since anyone looked
}

type modelTask struct {
	state    queue.State
	task     duly.Task
	due      span // of a leased one what it was, and will be if it comes back
	end      span // of the lease, of the task if it is dead, of its record if it is done
	fence    uint64
	failures int
	lapsed   bool // the last run's error is kept, and no failure
	crashes  int
	next     *modelTask
	result   string
	progress string

	cancelled, last bool // its run was, or is to be
}

func (t *modelTask) member(id string) string {
	return fmt.Sprintf("%d:%d%s", t.fence, t.due.lo, named(id, t.task.LockKey))
}

func newModel(limit int) *model {
	return &model{
		tasks: make(map[string]*modelTask), app: make(map[string]int64), ends: make(map[string]string), limit: limit,
	}
}

func (m *model) state(id string, now span) queue.State {
	if t := m.tasks[id]; t != nil && !t.forgotten(now) {
		return t.state
	}
	return queue.Missing
}

// forgotten reports whether a record need not be kept any more. Nothing tells it
// from one that is gone, but a look at the keys.
func (t *modelTask) forgotten(now span) bool { return t.state == queue.Done && t.end.hi <= now.lo }

// forget drops such records, as pops and settlements do.
func (m *model) forget(now span) {
	for id, t := range m.tasks {
		if t.forgotten(now) {
			delete(m.tasks, id)
		}
	}
}

// end notes how a task has ended.
func (m *model) end(id, how string) { m.ends[id] = how }

// enqueue returns what the receipt must say; due is zero if it says none.
func (m *model) enqueue(task duly.Task, due, now span, conflict queue.Conflict) (queue.Outcome, queue.State, span) {
	fresh := &modelTask{state: queue.Due, task: task, due: due}
	t := m.tasks[task.ID]
	if t == nil {
		m.tasks[task.ID] = fresh
		return queue.Added, queue.Missing, due
	}
	if t.state == queue.Done {
		state := m.state(task.ID, now)
		m.tasks[task.ID] = fresh
		return queue.Added, state, due
	}
	rival := t // whose place the new task wants
	switch t.state {
	case queue.Leased:
		rival = t.next
	case queue.Dead:
		rival = nil
	}
	wins := conflict == queue.Replace || conflict == queue.Earliest && (rival == nil || due.lo < rival.due.lo)
	switch {
	case !wins && rival == nil:
		return queue.Kept, t.state, span{}
	case !wins:
		return queue.Kept, t.state, rival.due
	case t.state == queue.Leased:
		t.next, t.last = fresh, false
	default:
		m.tasks[task.ID] = fresh
	}
	return queue.Replaced, t.state, due
}

// pop returns the IDs that are leased, and whether that repeats a lost pop.
func (m *model) pop(n int, now span, lease time.Duration, lost bool) (leased []string, again bool) {
	if m.paused {
		return nil, false
	}
	m.rate(now)
	m.forget(now)
	m.reclaim(now)
	m.unheard = slices.DeleteFunc(m.unheard, m.cut)
	again = len(m.unheard) > 0
	if again {
		for _, id := range m.unheard[min(n, len(m.unheard)):] {
			m.back(id)
		}
		leased = m.unheard[:min(n, len(m.unheard))]
	} else {
		leased = m.lease(m.room(n, now), now, lease)
		m.charge(len(leased), now)
	}
	if m.unheard = nil; lost {
		m.unheard = leased
	}
	for _, id := range leased {
		m.tasks[id].state, m.tasks[id].end = queue.Leased, now.add(lease)
	}
	return leased, again
}

// back makes a leased task due again, or its replacement.
func (m *model) back(id string) {
	if t := m.tasks[id]; t.next != nil {
		m.tasks[id] = t.next
	} else {
		t.state = queue.Due
	}
}

// lease leases the first n tasks that may run: their lock keys are free, and if one
// more crash would bury them no other such is on trial.
func (m *model) lease(n int, now span, lease time.Duration) (leased []string) {
	t := m.tasks[m.suspect]
	busy := now.lo < m.trialEnd.lo && t != nil && t.state == queue.Leased && t.fence == m.tried
	for _, id := range m.ready(now) {
		t := m.tasks[id]
		last := m.limit > 1 && t.crashes >= m.limit-1
		switch {
		case len(leased) == n:
			return leased
		case m.taken(t.task.LockKey, now):
			continue
		case last && busy:
			t.due = now.add(100 * time.Millisecond)
			continue
		case last:
			busy, m.suspect, m.trialEnd, m.tried = true, id, now.add(lease/3), 0
		}
		t.state = queue.Leased
		leased = append(leased, id)
	}
	return leased
}

// taken reports whether a lock key is: by the application, or by a leased task.
func (m *model) taken(key string, now span) bool {
	if key == "" {
		return false
	}
	for _, t := range m.tasks {
		if t.state == queue.Leased && t.task.LockKey == key {
			return true
		}
	}
	return now.lo < m.app[key]
}

// ready returns the IDs that are due now, in the order of their times.
func (m *model) ready(now span) []string {
	var ready []string
	for id, t := range m.tasks {
		if t.state == queue.Due && t.due.lo <= now.lo {
			ready = append(ready, id)
		}
	}
	slices.SortFunc(ready, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.tasks[a].due.lo, m.tasks[b].due.lo), cmp.Compare(a, b))
	})
	return ready
}

// reclaim ends the leases that ran out, in the order of their ends.
func (m *model) reclaim(now span) {
	var over []string
	for id, t := range m.tasks {
		if t.state == queue.Leased && t.end.lo <= now.lo {
			over = append(over, id)
		}
	}
	slices.SortFunc(over, func(a, b string) int {
		s, t := m.tasks[a], m.tasks[b]
		return cmp.Or(cmp.Compare(s.end.lo, t.end.lo), cmp.Compare(s.member(a), t.member(b)))
	})
	for _, id := range over {
		m.unheard = slices.DeleteFunc(m.unheard, func(u string) bool { return u == id })
		t := m.tasks[id]
		if m.cut(id) {
			continue
		}
		if m.back(id); t.next != nil {
			continue
		}
		if t.crashes++; t.crashes >= m.limit {
			t.state, t.end = queue.Dead, now
			m.end(id, "bury: "+duly.ErrCrashed.Error())
		}
	}
}

// cut ends the run of an ID if it was cancelled or was to be the last, and reports
// whether it was.
func (m *model) cut(id string) bool {
	t := m.tasks[id]
	if !t.cancelled && !t.last {
		return false
	}
	if delete(m.tasks, id); t.next != nil {
		m.tasks[id] = t.next
	} else {
		m.end(id, "cancel: ")
	}
	return true
}

// held returns the task of a delivery if its lease is the newest.
func (m *model) held(d *duly.Delivery) *modelTask {
	t := m.tasks[d.ID]
	if t == nil || t.state != queue.Leased || t.member(d.ID) != fmt.Sprintf("%d:%d%s", d.Fence, d.Due.UnixMicro(), named(d.ID, d.LockKey)) {
		return nil
	}
	return t
}

// settle reports whether the lease was held.
func (m *model) settle(s duly.Settlement, now span) bool {
	t := m.held(s.Delivery)
	if t == nil {
		return false
	}
	ticked := s.Action == duly.Repeated && s.Err == nil
	over := t.cancelled || t.last
	switch {
	case t.next != nil:
		m.tasks[s.Delivery.ID] = t.next
		switch {
		case ticked:
			m.end(s.Delivery.ID, "ack: "+string(s.Result))
		case s.Action == duly.Repeated && over:
			m.end(s.Delivery.ID, "cancel: ")
		case s.Action == duly.Repeated:
			m.end(s.Delivery.ID, "repeat: test")
		}
		return true
	case over && ticked:
		m.end(s.Delivery.ID, "ack: "+string(s.Result))
		delete(m.tasks, s.Delivery.ID)
		return true
	case over && s.Action != duly.Acked:
		m.end(s.Delivery.ID, "cancel: ")
		delete(m.tasks, s.Delivery.ID)
		return true
	case s.Action == duly.Acked && t.task.Retain > 0:
		m.end(s.Delivery.ID, "ack: "+string(s.Result))
		t.state, t.end, t.result = queue.Done, now.add(t.task.Retain), string(s.Result)
		t.failures, t.crashes, t.cancelled, t.last, t.lapsed = 0, 0, false, false, false
		return true
	case s.Action == duly.Acked || s.Action == duly.Dropped:
		why := string(s.Result)
		if s.Action == duly.Dropped {
			why = "test"
		}
		m.end(s.Delivery.ID, string(s.Action)+": "+why)
		delete(m.tasks, s.Delivery.ID)
		return true
	case s.Action == duly.Buried:
		m.end(s.Delivery.ID, "bury: test")
		t.state, t.end = queue.Dead, now
	case s.Action == duly.Repeated:
		if m.end(s.Delivery.ID, "repeat: test"); ticked {
			m.end(s.Delivery.ID, "ack: "+string(s.Result))
		}
		at := s.At.UnixMicro()
		*t = modelTask{state: queue.Due, task: t.task, due: span{at, at}, lapsed: s.Err != nil}
		return true
	default:
		if t.state = queue.Due; s.In > 0 || s.Action == duly.Retried {
			t.due = now.add(s.In)
		}
	}
	if s.Action != duly.Released {
		t.failures++
		t.crashes, t.lapsed = 0, false
	}
	return true
}

func (m *model) extend(d *duly.Delivery, now span, lease time.Duration) bool {
	t := m.held(d)
	if t == nil || now.lo < m.app[d.LockKey] {
		return false
	}
	t.end = now.add(lease)
	return true
}

func (m *model) cancel(id string, now span) queue.State {
	state := m.state(id, now)
	switch state {
	case queue.Due:
		m.end(id, "cancel: ")
		delete(m.tasks, id)
	case queue.Leased:
		t := m.tasks[id]
		t.next, t.last = nil, t.task.Every != ""
	}
	return state
}

func (m *model) cancelRunning(id string, now span) queue.State {
	state := m.cancel(id, now)
	if state == queue.Leased {
		m.tasks[id].cancelled, m.tasks[id].last = true, false
	}
	return state
}

func (m *model) reschedule(id string, due, now span) queue.State {
	state := m.state(id, now)
	switch t := m.tasks[id]; {
	case state == queue.Due:
		t.due = due
	case state == queue.Leased && t.next != nil:
		t.next.due = due
	}
	return state
}

func (m *model) revive(id string, now span) bool {
	t := m.tasks[id]
	if t == nil || t.state != queue.Dead {
		return false
	}
	m.tasks[id] = &modelTask{state: queue.Due, task: t.task, due: now, progress: t.progress}
	return true
}

func (m *model) purge(age time.Duration, now span) int {
	n := 0
	for id, t := range m.tasks {
		if t.state == queue.Dead && t.end.lo <= now.add(-age).lo {
			delete(m.tasks, id)
			n++
		}
	}
	return n
}
