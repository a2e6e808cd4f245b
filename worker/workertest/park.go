package workertest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// unclaimed is how long a task may be due whose turn it is, as in a queue, until its
// key is looked at again. If it is cancelled or moved, that is done at once.
const unclaimed = time.Minute

// blocked reports whether another holds the lock key of a task.
func (s *Source) blocked(e *entry) bool { return s.holders[e.task.LockKey] != nil }

// hold gives a leased task its lock key, if it has one.
func (s *Source) hold(e *entry) {
	key := e.task.LockKey
	if key == "" {
		return
	}
	s.holders[key], e.holds = e, key
	if _, waited := s.looks[key]; waited {
		s.looks[key] = e.at
	}
}

// park puts by a task that is due, until its lock key may be free.
func (s *Source) park(e *entry) {
	s.looks[e.task.LockKey] = s.holders[e.task.LockKey].at
	s.move(e, Parked, e.at)
}

// yield has the next Pop look at a lock key that tasks may be parked for: its
// holder has let it go, or who was to be the next is gone.
func (s *Source) yield(key string) {
	if _, waited := s.looks[key]; waited {
		s.looks[key] = time.Time{}
		s.hint()
	}
}

// look makes due again, for each lock key that is free by now, the first of those
// that are parked for it. One that is due earlier still goes first.
func (s *Source) look(now time.Time) {
	keys := slices.SortedFunc(maps.Keys(s.looks), func(a, b string) int {
		return cmp.Or(s.looks[a].Compare(s.looks[b]), strings.Compare(a, b))
	})
	for _, key := range keys {
		if s.looks[key].After(now) {
			return
		}
		delete(s.looks, key)
		if holder := s.holders[key]; holder != nil {
			s.looks[key] = holder.at
		} else if s.unpark(key) {
			s.looks[key] = now.Add(unclaimed)
		}
	}
}

// unpark makes due the first of those that wait for a key, and reports whether there
// are more.
func (s *Source) unpark(key string) (more bool) {
	var first *entry
	for _, e := range *s.states[Parked] {
		switch {
		case e.task.LockKey != key:
		case first != nil:
			more = true
		default:
			first = e
		}
	}
	if first != nil {
		s.move(first, Due, first.at)
	}
	return more
}
