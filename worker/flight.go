package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dulyhq/duly"
)

// A flight is a delivery in this worker's hands, from its pop until it is
// settled or lost.
type flight struct {
	*duly.Delivery
	settler *settler // of the source it came from
	fetched time.Time
	ctx     handlerContext // of the handler, once it has started
	place   int            // among what the keeper holds; the keeper guards it

	verdict duly.Settlement // once it has ended

	queued time.Time  // since when it waits in the backlog, which guards this and what follows
	limit  *kindLimit // among which it has a place; nil if its kind has no limit

	mu      sync.Mutex // guards what follows
	until   time.Time  // when the lease ends, by the local clock
	renewal time.Time  // when the keeper is to extend it
	lost    bool
	ran     bool
	expired bool // the task had; it is done without having run

	cancelled bool // it is not to start, or to end soon
}

// now is the source's clock, as far as its last answer told.
func (f *flight) now() time.Time { return f.at(time.Now()) }

// at is the source's clock at a time of ours.
func (f *flight) at(now time.Time) time.Time { return f.Popped.Add(now.Sub(f.fetched)) }

// leaseEnd is when a lease ends for its holder: counted from before the request
// for it was sent, less 1 % for the drift between two clocks and 2 ms.
func leaseEnd(sent time.Time, lease time.Duration) time.Time {
	return sent.Add(lease - lease/100 - 2*time.Millisecond)
}

// late reports whether the task has expired.
func (f *flight) late(now time.Time) bool {
	_, late := f.Expired(f.at(now))
	return late
}

// start sets the handler's context, unless the lease is lost or the run cancelled.
func (f *flight) start(base context.Context, stopped *atomic.Pointer[time.Time], timeout time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.lost || f.cancelled || !now.Before(f.until) {
		return false
	}
	f.ctx.base, f.ctx.stopped, f.ctx.deadline = base, stopped, now.Add(timeout)
	f.ran = true
	return true
}

// lose ends the handler's context: the lease is gone.
func (f *flight) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = true
	if f.ran {
		f.ctx.end(duly.ErrLeaseLost)
	}
}

// cancel ends the handler's context: the task is to be dropped.
func (f *flight) cancel() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = true
	if f.ran {
		f.ctx.end(duly.ErrCancelled)
	}
}

// wasCancelled reports whether the run was cancelled, as far as this process
// knows.
func (f *flight) wasCancelled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cancelled
}

// expire notes that the handler is not called, for the task has expired or is too
// late for its tick.
func (f *flight) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired = true
}

// done reports whether the task had its turn: its handler was called, or it had
// expired, or was cancelled.
func (f *flight) done() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ran || f.expired || f.cancelled
}

// held reports whether the lease is held at a time, as far as this process
// knows.
func (f *flight) held(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.lost && now.Before(f.until)
}
