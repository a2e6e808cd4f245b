//go:build !race

package worker_test

// simSeeds is how many days are simulated.
const simSeeds = 500
