package worker_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

const simCrashes = 3 // leases in a row that may run out

// A simModel is what the queue of a simulation is meant to hold. Times are µs.
type simModel struct {
	tasks   map[string]*simTask
	fates   map[string]string // version -> how it ended
	ends    []simEnd          // what those are told who wait
	fence   uint64
	unheard map[*simWorker][]string // IDs that a pop leased whose reply was lost
	wrong   []string                // what should not have happened
}

type simTask struct {
	duly.Task
	state     queue.State
	due, end  int64 // the end is that of the lease, of the task if it is dead, of its record if it is done
	fence     uint64
	failures  int
	crashes   int
	cancelled bool
	next      *simTask
}

type simEnd struct {
	id, how string
	at      int64
}

func newSimModel() *simModel {
	return &simModel{tasks: make(map[string]*simTask), fates: make(map[string]string), unheard: make(map[*simWorker][]string)}
}

func (m *simModel) clone() *simModel {
	c := &simModel{
		tasks: make(map[string]*simTask), fates: maps.Clone(m.fates), unheard: maps.Clone(m.unheard),
		ends: slices.Clip(m.ends), fence: m.fence,
	}
	for id, t := range m.tasks {
		twin := *t
		c.tasks[id] = &twin
		if t.next != nil {
			next := *t.next
			twin.next = &next
		}
	}
	return c
}

func (m *simModel) complain(format string, args ...any) {
	m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
}

// fate notes how a version ended, which happens once.
func (m *simModel) fate(t *simTask, how string) {
	version := string(t.Payload)
	if before := m.fates[version]; before != "" && before != "bury" { // what is dead may be revived
		m.complain("%s of %s ended by %s, and before by %s", version, t.ID, how, before)
	}
	m.fates[version] = how
}

// gone ends a task that leaves, and tells those who wait.
func (m *simModel) gone(t *simTask, how, told string, now int64) {
	m.fate(t, how)
	delete(m.tasks, t.ID)
	m.ends = append(m.ends, simEnd{t.ID, told, now})
}

// replaced puts a new task in the place of one.
func (m *simModel) replaced(t, by *simTask) {
	if t.state == queue.Done {
		m.tasks[by.ID] = by // it has had its fate
		return
	}
	m.fate(t, "replaced")
	m.tasks[by.ID] = by
}

func (m *simModel) state(id string, now int64) queue.State {
	t := m.tasks[id]
	if t == nil || t.state == queue.Done && t.end <= now {
		return queue.Missing
	}
	return t.state
}

func (m *simModel) enqueue(task duly.Task, due, now int64, conflict queue.Conflict) (queue.Outcome, queue.State) {
	fresh := &simTask{Task: task, state: queue.Due, due: due}
	t, state := m.tasks[task.ID], m.state(task.ID, now)
	switch {
	case t == nil:
		m.tasks[task.ID] = fresh
		return queue.Added, state
	case t.state == queue.Done:
		m.replaced(t, fresh)
		return queue.Added, state
	}
	rival := t
	switch t.state {
	case queue.Leased:
		rival = t.next
	case queue.Dead:
		rival = nil
	}
	switch wins := conflict == queue.Replace || conflict == queue.Earliest && (rival == nil || due < rival.due); {
	case !wins:
		return queue.Kept, state
	case t.state == queue.Leased:
		if t.next != nil {
			m.fate(t.next, "replaced")
		}
		t.next = fresh
	default:
		m.replaced(t, fresh)
	}
	return queue.Replaced, state
}

func (m *simModel) cancel(id string, run bool, now int64) queue.State {
	state := m.state(id, now)
	switch t := m.tasks[id]; state {
	case queue.Due:
		m.gone(t, "cancel", "cancel: ", now)
	case queue.Leased:
		if t.next != nil {
			m.fate(t.next, "cancel")
			t.next = nil
		}
		t.cancelled = t.cancelled || run
	}
	return state
}

func (m *simModel) reschedule(id string, due, now int64) queue.State {
	state := m.state(id, now)
	switch t := m.tasks[id]; {
	case state == queue.Due:
		t.due = due
	case state == queue.Leased && t.next != nil:
		t.next.due = due
	}
	return state
}

func (m *simModel) revive(id string, now int64) int {
	t := m.tasks[id]
	if t == nil || t.state != queue.Dead {
		return 0
	}
	m.tasks[id] = &simTask{Task: t.Task, state: queue.Due, due: now}
	return 1
}

// held is the task of a delivery whose lease is the newest.
func (m *simModel) held(d *duly.Delivery) *simTask {
	t := m.tasks[d.ID]
	if t == nil || t.state != queue.Leased || t.fence != d.Fence {
		return nil
	}
	return t
}

// settle reports whether the lease was held.
func (m *simModel) settle(s duly.Settlement, now int64) bool {
	t := m.held(s.Delivery)
	if t == nil {
		return false
	}
	why := ""
	if s.Err != nil {
		why = s.Err.Error()
	}
	switch {
	case t.next != nil:
		m.replaced(t, t.next)
	case s.Action == duly.Acked && t.Retain > 0:
		m.fate(t, "ack")
		m.ends = append(m.ends, simEnd{t.ID, "ack: " + string(s.Result), now})
		*t = simTask{Task: t.Task, state: queue.Done, end: now + t.Retain.Microseconds()}
	case s.Action == duly.Acked:
		m.gone(t, "ack", "ack: "+string(s.Result), now)
	case t.cancelled:
		m.gone(t, "cancel", "cancel: ", now)
	case s.Action == duly.Dropped:
		m.gone(t, "drop", "drop: "+why, now)
	case s.Action == duly.Buried:
		m.fate(t, "bury")
		m.ends = append(m.ends, simEnd{t.ID, "bury: " + why, now})
		failures := t.failures
		if !errors.Is(s.Err, duly.ErrExpired) { // else no attempt was made
			failures++
		}
		*t = simTask{Task: t.Task, state: queue.Dead, end: now, failures: failures}
	case s.Action == duly.Retried:
		*t = simTask{Task: t.Task, state: queue.Due, due: now + s.In.Microseconds(), failures: t.failures + 1}
	default: // released
		if t.state = queue.Due; s.In > 0 {
			t.due = now + s.In.Microseconds()
		}
	}
	return true
}

func (m *simModel) extend(d *duly.Delivery, now int64, lease time.Duration) (held, cancelled bool) {
	t := m.held(d)
	if t == nil {
		return false, false
	}
	t.end = now + lease.Microseconds()
	return true, t.cancelled
}

// cut ends a run that was cancelled and that nobody goes on with.
func (m *simModel) cut(t *simTask, now int64) bool {
	if !t.cancelled {
		return false
	}
	if t.next != nil {
		m.replaced(t, t.next)
	} else {
		m.gone(t, "cancel", "cancel: ", now)
	}
	return true
}

// back makes a leased task due again, or its replacement.
func (m *simModel) back(t *simTask) {
	if t.next != nil {
		m.replaced(t, t.next)
	} else {
		t.state = queue.Due
	}
}

// reclaim ends the leases that ran out.
func (m *simModel) reclaim(now int64) {
	for _, t := range maps.Clone(m.tasks) {
		if t.state != queue.Leased || t.end > now || m.cut(t, now) {
			continue
		}
		m.drop(t.ID)
		next := t.next
		if m.back(t); next != nil {
			continue
		}
		if t.crashes++; t.crashes >= simCrashes {
			m.fate(t, "bury")
			m.ends = append(m.ends, simEnd{t.ID, "bury: " + duly.ErrCrashed.Error(), now})
			*t = simTask{Task: t.Task, state: queue.Dead, end: now, failures: t.failures, crashes: t.crashes}
		}
	}
}

// drop forgets that an ID was leased by a pop that nobody heard of.
func (m *simModel) drop(id string) {
	for w, ids := range m.unheard {
		m.unheard[w] = slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
	}
}

// taken reports whether a lock key is.
func (m *simModel) taken(key string) bool {
	for _, t := range m.tasks {
		if key != "" && t.state == queue.Leased && t.LockKey == key {
			return true
		}
	}
	return false
}

// pop follows a pop of a worker by what is leased after it, and checks that each of
// those might be.
func (m *simModel) pop(w *simWorker, leases map[string]simLease, now int64, lease time.Duration) (leased []string) {
	m.reclaim(now)
	unheard := m.unheard[w]
	delete(m.unheard, w)
	for _, id := range unheard {
		t := m.tasks[id]
		switch l, ok := leases[id]; {
		case t == nil:
			m.complain("%s was leased by a pop that nobody heard of, and is gone", id)
		case m.cut(t, now):
		case ok && l.fence == t.fence:
			t.end = now + lease.Microseconds()
			leased = append(leased, id)
		default:
			m.back(t)
		}
	}
	last := m.fence
	for _, id := range slices.Sorted(maps.Keys(leases)) {
		t, l := m.tasks[id], leases[id]
		switch {
		case t == nil || t.state == queue.Leased && t.fence == l.fence:
			continue // the comparison tells
		case t.state != queue.Due || t.due > now:
			m.complain("%s was popped at %d, it is %s and due at %d", id, now, t.state, t.due)
		case m.taken(t.LockKey):
			m.complain("%s was popped while its lock key %s is taken", id, t.LockKey)
		case l.fence <= last:
			m.complain("%s has fence %d, after %d", id, l.fence, last)
		}
		t.state, t.fence, t.end = queue.Leased, l.fence, now+lease.Microseconds()
		m.fence = max(m.fence, l.fence)
		leased = append(leased, id)
	}
	return leased
}

// ready are the tasks that a pop must bring in due order: those that nothing holds up.
func (m *simModel) ready(now int64) (ready []*simTask) {
	for _, t := range m.tasks {
		if t.state == queue.Due && t.due <= now && t.LockKey == "" && t.crashes < simCrashes-1 {
			ready = append(ready, t)
		}
	}
	return ready
}
