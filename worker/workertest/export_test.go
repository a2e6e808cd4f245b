package workertest

import "testing"

// RunDueMost is RunDue with a bound of its own.
var RunDueMost = runDue

// FreeKey takes a lock key from its holder, and HoldKey gives it to nobody.
func (s *Source) FreeKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, key)
	s.yield(key)
}

func (s *Source) HoldKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[key] = &entry{at: s.now().Add(maxWait)}
}

// A Case is one test of the kit, to be run where subtests cannot be: in a bubble,
// or against a source that must fail it.
type Case struct {
	Name string
	Run  func(testing.TB, Harness)
}

// Cases are the tests of the kit.
func Cases() []Case {
	var all []Case
	for _, c := range cases() {
		all = append(all, Case{c.name, c.run})
	}
	return all
}
