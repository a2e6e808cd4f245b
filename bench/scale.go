package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A scale is how much the suites do.
type scale struct {
	enqueue  time.Duration // of one measurement
	process  time.Duration // of one measurement, about
	pools    []int         // concurrencies of the process suite
	rates    []int         // tasks due a second, of the lateness suite
	lateness time.Duration // over which they are due
	burst    int           // tasks due in one second
	memory   int           // tasks that lie there
	idle     time.Duration // of watching
	crash    time.Duration // after which a task that has not run again is given up
	backlog  []int         // tasks that lie there
	spike    int           // tasks measured beside them
	locks    int           // free locks that are taken and given back
	contest  time.Duration // over which many want one lock
}

func fullScale() scale {
	return scale{
		enqueue: time.Second / 2, process: time.Second, pools: []int{1, 10, 100}, rates: []int{500, 5000}, lateness: 3 * time.Second,
		burst: 100_000, memory: 100_000, idle: 20 * time.Second, crash: 180 * time.Second, spike: 100_000,
		locks: 5_000, contest: 5 * time.Second,
	}
}

// quickScale is enough to see that everything runs.
func quickScale() scale {
	return scale{
		enqueue: 150 * time.Millisecond, process: 150 * time.Millisecond, pools: []int{100}, rates: []int{500}, lateness: time.Second,
		burst: 5_000, memory: 5_000, idle: time.Second, crash: 180 * time.Second, backlog: []int{1_000, 10_000}, spike: 5_000,
		locks: 500, contest: time.Second,
	}
}

func parseSizes(list string) ([]int, error) {
	var sizes []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-sizes: %q is no count of tasks", text)
		}
		sizes = append(sizes, n)
	}
	return sizes, nil
}
