package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// A hundred to one, with the heavy queue always full: the light one has its share
// all the same.
func TestNoQueueStarvesUnderWeightsOnARealRedis(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	heavy, light := s.open("heavy"), s.open("light")
	const ofHeavy, ofLight = 5000, 30
	s.fill(heavy, "k", ofHeavy)
	s.fill(light, "k", ofLight)
	var mu sync.Mutex
	var ran []string
	launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
		mu.Lock()
		ran = append(ran, d.Queue)
		mu.Unlock()
		time.Sleep(500 * time.Microsecond)
		return nil
	}), worker.Config{Concurrency: 4, Weights: map[string]int{"heavy": 100}}, heavy, light)
	eventually(t, "all have run", time.Minute, func() bool { return s.left(heavy)+s.left(light) == 0 })
	heavies, lights, longest, last := 0, 0, 0, 0
	for _, name := range ran {
		switch {
		case name == "light":
			lights++
			longest, last = max(longest, heavies-last), heavies
		case lights < ofLight:
			heavies++
		}
	}
	t.Logf("the light queue was done after %d of the heavy one, and waited for %d at most", heavies, longest)
	if lights != ofLight || heavies > ofHeavy*9/10 {
		t.Errorf("%d of %d of the light queue ran beside %d of the heavy", lights, ofLight, heavies)
	}
}

// In any order in which they were enqueued, and beside whatever other queues.
func TestEachQueueOfAWorkerRunsInDueOrderOnARealRedis(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]worker.Config{
		"weighted": {Concurrency: 1, Weights: map[string]int{"a": 5, "b": 2}},
		"strict":   {Concurrency: 1, Strict: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			const each = 200
			var sources []worker.Source
			now, err := s.rdb.Time(t.Context()).Result()
			must(t, err)
			first := now.Add(time.Second)
			for _, name := range []string{"a", "b", "c"} {
				q := s.open(name)
				sources = append(sources, q)
				for _, i := range rand.Perm(each) {
					task := duly.Task{ID: fmt.Sprint(rand.Uint64()), Kind: "k"}
					_, err := q.Enqueue(t.Context(), task, queue.At(first.Add(time.Duration(i)*time.Microsecond)))
					must(t, err)
				}
			}
			time.Sleep(time.Until(first) + 10*time.Millisecond) // a backlog, not a trickle
			ran := make(chan *duly.Delivery, 3*each)
			launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
				ran <- d
				return nil
			}), cfg, sources...)
			last := make(map[string]time.Time)
			for range 3 * each {
				d := <-ran
				if d.Due.Before(last[d.Queue]) {
					t.Errorf("of %s one due at %v ran after one due at %v", d.Queue, d.Due, last[d.Queue])
				}
				last[d.Queue] = d.Due
			}
		})
	}
}
