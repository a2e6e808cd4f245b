//go:build race

package queue_test

// machineSteps is how many verbs the histories on each kind of Redis have together.
// The race detector makes miniredis's Lua ten times slower: `make test` runs the
// histories again without it.
const machineSteps = 5_000
