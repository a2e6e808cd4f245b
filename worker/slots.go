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
	aheadMost = 2_000
	batchMost = 500 // the most that a Pop brings
)

// slots bounds what a worker holds: a goroutine of the pool each, and some
// fetched ahead for quick handlers. Sources that want them at the same time get
// them by weight, or in their order if they are strict.
type slots struct {
	strict bool

	mu     sync.Mutex // guards what follows and the shares
	size   int        // goroutines
	ahead  int        // fetched ahead
	out    int        // dealt
	shares []*share
	pass   float64 // the virtual time of the last one served
	weight float64 // of all shares

	since time.Time // start of the window in which done counts
	done  int
}

// A share is one source's right to slots. Sources that compete are served by
// stride scheduling: a slot goes to the one with the lowest pass, which then
// grows by one over its weight (Waldspurger and Weihl, 1995). One that is about
// to come back for more competes while it is popping, or the others would take
// what becomes free just then.
type share struct {
	weight float64
	pass   float64
	idle   bool // its source had less than it got slots for
	waits  bool
	ready  int // dealt, not yet granted
	grant  chan int
}

func newSlots(size int, strict bool) *slots {
	return &slots{size: size, strict: strict, since: time.Now()}
}

// share makes the share of a source.
func (s *slots) share(weight int) *share {
	sh := &share{weight: float64(max(weight, 1)), idle: true, grant: make(chan int, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares = append(s.shares, sh)
	s.weight += sh.weight
	return sh
}

// take waits for slots and returns how many it got; zero means that ctx ended.
func (s *slots) take(ctx context.Context, sh *share) int {
	s.mu.Lock()
	sh.pass = max(sh.pass, s.pass) // nothing is saved up
	sh.waits = true
	if s.strict {
		s.takeBack(sh)
	}
	s.serve()
	s.mu.Unlock()
	select {
	case n := <-sh.grant:
		return n
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sh.waits {
		s.out -= <-sh.grant // it was served just now
	}
	sh.waits = false
	return 0
}

// takeBack takes what is put by for those behind a share: their pops may hang.
func (s *slots) takeBack(sh *share) {
	for i := len(s.shares) - 1; s.shares[i] != sh; i-- {
		s.out -= s.shares[i].ready
		s.shares[i].ready = 0
	}
}

// refund gives back slots for which there was no task.
func (s *slots) refund(sh *share, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sh.idle = n > 0; sh.idle {
		n += sh.ready
		sh.ready = 0
	}
	s.out -= n
	sh.pass -= float64(n) / sh.weight
	s.serve()
}

// free gives back the slots of n tasks, of which the pool is done with some.
func (s *slots) free(n, done int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out -= n
	s.done += done
	s.adapt(time.Now())
	s.serve()
}

// lend frees the slot of a task that waits for something else than a goroutine.
func (s *slots) lend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out--
	s.serve()
}

// recall takes a slot that was lent, also if that is one too many.
func (s *slots) recall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out++
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

// serve deals free slots, once they are worth a round trip, and grants what is
// dealt to those that wait.
func (s *slots) serve() {
	free := s.size + s.ahead - s.out
	if free < max(1, s.ahead/4) {
		free = 0
	}
	for ; free > 0; free-- {
		sh := s.first()
		if sh == nil {
			break
		}
		s.pass = sh.pass
		sh.pass += 1 / sh.weight
		sh.ready++
		s.out++
	}
	for _, sh := range s.shares {
		if sh.waits && sh.ready > 0 {
			n := min(sh.ready, batchMost)
			sh.ready -= n
			sh.waits = false
			sh.idle = sh.idle && !s.strict // until its pop has told, nobody behind it is served
			sh.grant <- n
		}
	}
}

// first is who gets the next slot, if anyone does.
func (s *slots) first() *share {
	var first *share
	for _, sh := range s.shares {
		switch {
		case !sh.waits && (sh.idle || float64(sh.ready) >= s.part(sh)):
		case s.strict:
			return sh
		case first == nil || sh.pass < first.pass:
			first = sh
		}
	}
	return first
}

// part is how many slots one that is popping can have put by: its part of all, for
// the pop may hang. One that is strict gives nothing away.
func (s *slots) part(sh *share) float64 {
	all := float64(s.size + s.ahead)
	if s.strict {
		return all
	}
	return all * sh.weight / s.weight
}
