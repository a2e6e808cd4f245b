package locktest

import "testing"

// A Case is one test of the kit, to be run where subtests cannot be: in a bubble,
// or on lockers that must fail it.
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
