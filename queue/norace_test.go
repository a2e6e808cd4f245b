//go:build !race

package queue_test

// machineSteps is how many verbs the histories on each kind of Redis have together.
const machineSteps = 50_000
