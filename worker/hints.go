package worker

import (
	"context"
	"sync"
	"time"
)

// hints holds the earliest time at which a pop may bring something, of those
// that a source has hinted at since the last pop was sent.
type hints struct {
	mu      sync.Mutex
	at      time.Time // zero without one; guarded by mu
	earlier chan struct{}
}

func newHints() hints { return hints{earlier: make(chan struct{}, 1)} }

// add takes a hint. It never blocks.
func (h *hints) add(in time.Duration) {
	at := time.Now().Add(in)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.at.IsZero() && !at.Before(h.at) {
		return
	}
	h.at = at
	select {
	case h.earlier <- struct{}{}:
	default: // one is waiting
	}
}

// clear forgets what was hinted, for a pop that is sent now will tell.
func (h *hints) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = time.Time{}
}

// The end of a sleep is napped through, in parts so that a hint is not missed.
const (
	napFrom = 1500 * time.Microsecond // before the end: more than a timer is late
	napPart = 250 * time.Microsecond
)

// sleep waits for d, for the time of the earliest hint, or for the end of ctx. It
// ends as exactly as it can if that is when something is due.
func (h *hints) sleep(ctx context.Context, d time.Duration) {
	until, exact := time.Now().Add(d), d < pollMost
	for ctx.Err() == nil {
		if at, ok := h.first(); ok && at.Before(until) {
			until, exact = at, true
		}
		left := time.Until(until)
		switch {
		case left <= 0:
			return
		case exact && left <= napFrom:
			exact = nap(min(left, napPart))
			continue
		case exact:
			left -= napFrom
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-h.earlier:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// first is the earliest hint, if there is one.
func (h *hints) first() (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at, !h.at.IsZero()
}
