package worker

import (
	"sync"
	"time"
)

// stale is how long a flight may wait for a goroutine of the pool before it is
// given back, for another worker may be free.
const stale = 30 * time.Millisecond

// A backlog holds the flights that wait for a goroutine of the pool, first come,
// first served.
type backlog struct {
	giveBack func(*flight)
	slow     func() // told when the pool does not keep up

	mu     sync.Mutex // guards what follows
	filled sync.Cond
	items  []*flight
	closed bool
	idle   int         // goroutines that wait
	sweep  *time.Timer // runs while flights wait
}

func newBacklog(giveBack func(*flight), slow func()) *backlog {
	b := &backlog{giveBack: giveBack, slow: slow}
	b.filled.L = &b.mu
	return b
}

// put adds flights; once the backlog is closed it gives them back.
func (b *backlog) put(flights []*flight) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.all(flights)
		return
	}
	b.items = append(b.items, flights...)
	for range min(len(flights), b.idle) {
		b.filled.Signal()
	}
	b.watch()
	b.mu.Unlock()
}

// take waits for a flight; false means that the backlog is closed.
func (b *backlog) take() (*flight, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle++
	for len(b.items) == 0 && !b.closed {
		b.filled.Wait()
	}
	b.idle--
	if b.closed {
		return nil, false
	}
	f := b.items[0]
	b.items[0] = nil
	b.items = b.items[1:]
	return f, true
}

// close ends all takes and gives back what is waiting.
func (b *backlog) close() {
	b.mu.Lock()
	left := b.items
	b.items, b.closed = nil, true
	if b.sweep != nil {
		b.sweep.Stop()
	}
	b.filled.Broadcast()
	b.mu.Unlock()
	b.all(left)
}

// watch sees to it that what waits for too long is given back. mu is held.
func (b *backlog) watch() {
	if len(b.items) <= b.idle || b.closed {
		return
	}
	wait := time.Until(b.items[0].fetched.Add(stale))
	if b.sweep == nil {
		b.sweep = time.AfterFunc(wait, b.sweepStale)
	} else {
		b.sweep.Reset(wait)
	}
}

// sweepStale holds mu until all is given back: what comes after close would find
// its settler gone.
func (b *backlog) sweepStale() {
	before := time.Now().Add(-stale)
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.items)-b.idle && !b.items[n].fetched.After(before) {
		n++
	}
	old := b.items[:n:n]
	b.items = b.items[n:]
	b.watch()
	if len(old) > 0 {
		b.slow()
		b.all(old)
	}
}

func (b *backlog) all(flights []*flight) {
	for _, f := range flights {
		b.giveBack(f)
	}
}
