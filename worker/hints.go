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

// sleep waits for d, for the time of the earliest hint, or for the end of ctx.
func (h *hints) sleep(ctx context.Context, d time.Duration) {
	until := time.Now().Add(d)
	for {
		h.mu.Lock()
		if !h.at.IsZero() && h.at.Before(until) {
			until = h.at
		}
		h.mu.Unlock()
		left := time.Until(until)
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-h.earlier:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}
