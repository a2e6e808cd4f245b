//go:build race

package worker_test

// simSeeds is how many days are simulated. The race detector makes miniredis's Lua ten
// times slower: `make test` simulates them again without it.
const simSeeds = 50
