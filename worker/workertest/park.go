package workertest

import "time"

// head finds the first n tasks that are due and whose lock key is free, has them
// hold it, and parks those that come before them.
func (s *Source) head(n int, now time.Time) (head []*entry) {
	var blocked []*entry
	for _, e := range *s.states[Due] {
		if len(head) == n || e.at.After(now) {
			break
		}
		key := e.task.LockKey
		if key != "" && s.holders[key] != nil {
			blocked = append(blocked, e)
			continue
		}
		if key != "" {
			s.holders[key], e.holds = e, key
		}
		head = append(head, e)
	}
	for _, e := range blocked {
		s.move(e, Parked, e.at)
	}
	return head
}

// handOver makes the first of those that are parked for a lock key due, at its own
// due time, unless the key is held. Who is due earlier still goes first.
func (s *Source) handOver(key string) {
	if key == "" || s.holders[key] != nil {
		return
	}
	for _, e := range *s.states[Parked] {
		if e.task.LockKey == key {
			s.move(e, Due, e.at)
			return
		}
	}
}
