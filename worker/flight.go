package worker

import (
	"context"
	"sync"
	"time"

	"github.com/dulyhq/duly"
)

// A flight is a delivery in this worker's hands, from its pop until it is
// settled or lost.
type flight struct {
	*duly.Delivery
	settler *settler // of the source it came from
	fetched time.Time

	mu      sync.Mutex // guards what follows
	until   time.Time  // when the lease ends, by the local clock
	renewal time.Time  // when the keeper is to extend it
	lost    bool
	ran     bool
	cancel  context.CancelCauseFunc // of the handler's context, while it runs
}

// leaseEnd is when a lease ends for its holder: counted from before the request
// for it was sent, less 1 % for the drift between two clocks and 2 ms.
func leaseEnd(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - lease/100 - 2*time.Millisecond)
}

// start makes the handler's context, unless the lease is lost.
func (f *flight) start(base context.Context, timeout time.Duration) (context.Context, context.CancelFunc, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost || !time.Now().Before(f.until) {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancelCause(base)
	f.cancel, f.ran = cancel, true
	ctx, stop := context.WithTimeoutCause(ctx, timeout, duly.ErrTimeout)
	return ctx, func() { stop(); cancel(nil) }, true
}

// lose ends the handler's context: the lease is gone.
func (f *flight) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = true
	if f.cancel != nil {
		f.cancel(duly.ErrLeaseLost)
	}
}

// started reports whether the handler was called.
func (f *flight) started() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ran
}

// held reports whether the lease is held, as far as this process knows.
func (f *flight) held() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.lost && time.Now().Before(f.until)
}
