package worker

import (
	"context"
	"sync"
	"time"
)

// Fetching ahead: what the pool finishes in this time may wait in the backlog,
// up to a bound.
const (
	aheadTime = 15 * time.Millisecond
	aheadMost = 1_000
	batchMost = 1_000
)

// slots bounds what a worker holds: a goroutine of the pool each, and some
// fetched ahead for quick handlers. Sources that want them at the same time get
// them by weight.
type slots struct {
	mu    sync.Mutex // guards what follows and the shares
	size  int        // goroutines
	ahead int        // fetched ahead
	out   int        // given out
	want  []*share   // those that wait
	pass  float64    // the virtual time of the last one served

	since time.Time // start of the window in which done counts
	done  int
}

// A share is one source's right to slots. Sources that compete are served by
// stride scheduling: the one with the lowest pass first, which then grows by
// what it got over its weight (Waldspurger and Weihl, 1995).
type share struct {
	weight float64
	pass   float64
	grant  chan int
}

func newSlots(size int) *slots { return &slots{size: size, since: time.Now()} }

func newShare(weight int) *share {
	return &share{weight: float64(max(weight, 1)), grant: make(chan int, 1)}
}

// take waits for slots and returns how many it got; zero means that ctx ended.
func (s *slots) take(ctx context.Context, sh *share) int {
	s.mu.Lock()
	sh.pass = max(sh.pass, s.pass)
	s.want = append(s.want, sh)
	s.serve()
	s.mu.Unlock()
	select {
	case n := <-sh.grant:
		return n
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.want {
		if other == sh {
			s.want = append(s.want[:i], s.want[i+1:]...)
			return 0
		}
	}
	s.out -= <-sh.grant // it was served just now
	s.serve()
	return 0
}

// refund gives back slots for which there was no task.
func (s *slots) refund(sh *share, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out -= n
	sh.pass -= float64(n) / sh.weight
	s.serve()
}

// free gives back the slots of n tasks, of which the pool has run some.
func (s *slots) free(n, ran int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out -= n
	s.done += ran
	s.adapt(time.Now())
	s.serve()
}

// adapt sets how much is fetched ahead by how much is done.
func (s *slots) adapt(now time.Time) {
	window := now.Sub(s.since)
	if window < aheadTime {
		return
	}
	s.ahead = min(s.done*int(aheadTime)/int(window), aheadMost)
	s.since, s.done = now, 0
}

// slow stops fetching ahead until the pool is quick again.
func (s *slots) slow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead, s.done, s.since = 0, 0, time.Now()
}

// serve hands free slots to those that wait, once they are worth a round trip.
func (s *slots) serve() {
	for len(s.want) > 0 {
		free := s.size + s.ahead - s.out
		if free < max(1, s.ahead/2) {
			return
		}
		first, total := 0, 0.0
		for i, sh := range s.want {
			total += sh.weight
			if sh.pass < s.want[first].pass {
				first = i
			}
		}
		sh := s.want[first]
		n := min(max(1, int(float64(free)*sh.weight/total)), batchMost)
		s.want = append(s.want[:first], s.want[first+1:]...)
		s.out += n
		s.pass = sh.pass
		sh.pass += float64(n) / sh.weight
		sh.grant <- n
	}
}
