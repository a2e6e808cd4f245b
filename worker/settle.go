package worker

import (
	"context"
	"sync"
	"time"

	"github.com/dulyhq/duly"
)

// longest bounds the delay of a retry: a source refuses one that is out of its
// bounds, and with it the batch.
const longest = 100 * 365 * 24 * time.Hour

// A settler records what became of one source's flights. What comes while a
// call is on its way goes together with the next.
type settler struct {
	source   Source
	keeper   *keeper
	slots    *slots
	health   *health
	counters *counters

	mu      sync.Mutex // guards what follows
	pending []*flight  // each with its verdict
	closed  bool
	wake    chan struct{} // something is pending, or it is closed
}

// put takes a flight that has ended, and how.
func (s *settler) put(f *flight, verdict duly.Settlement) {
	f.verdict = verdict
	f.verdict.Delivery, f.verdict.In = f.Delivery, min(verdict.In, longest)
	s.mu.Lock()
	s.pending = append(s.pending, f)
	s.mu.Unlock()
	s.signal()
}

// close lets run return once nothing is pending.
func (s *settler) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.signal()
}

func (s *settler) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// run settles until it is closed and has nothing left, or until ctx ends.
func (s *settler) run(ctx context.Context) {
	var failing pause
	for ctx.Err() == nil {
		batch, closed := s.next()
		switch {
		case len(batch) > 0:
			if s.settle(ctx, batch) {
				failing.reset()
				continue
			}
			failing.wait(ctx)
		case closed:
			return
		default:
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
		}
	}
}

// next takes what is pending, up to a batch, and lets go of what has been lost
// meanwhile. An empty batch means that nothing is pending.
func (s *settler) next() (batch []*flight, closed bool) {
	for {
		taken, over := s.take()
		var gone []*flight
		batch = taken[:0]
		now := time.Now()
		for _, f := range taken {
			if f.held(now) {
				batch = append(batch, f)
			} else {
				gone = append(gone, f)
			}
		}
		s.finish(gone)
		s.counters.lost.Add(int64(len(gone)))
		if len(batch) > 0 || len(taken) == 0 {
			return batch, over
		}
	}
}

func (s *settler) take() (taken []*flight, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.pending), batchMost)
	taken = s.pending[:n:n]
	s.pending = s.pending[n:]
	if len(s.pending) == 0 {
		s.pending = nil
	}
	return taken, s.closed
}

// settle reports whether the batch is done with; else it is pending again.
func (s *settler) settle(ctx context.Context, batch []*flight) bool {
	call, cancel := context.WithTimeout(ctx, callMost)
	defer cancel()
	settlements := make([]duly.Settlement, len(batch))
	for i, f := range batch {
		settlements[i] = f.verdict
	}
	lost, err := s.source.Settle(call, settlements)
	if ctx.Err() == nil {
		s.health.report(err)
	}
	if err != nil {
		s.mu.Lock()
		s.pending = append(batch, s.pending...)
		s.mu.Unlock()
		return false
	}
	s.count(settlements, lost)
	s.finish(batch)
	return true
}

func (s *settler) finish(flights []*flight) {
	if len(flights) == 0 {
		return
	}
	done := 0
	for _, f := range flights {
		if f.done() {
			done++
		}
	}
	s.keeper.remove(flights)
	s.slots.free(len(flights), done)
}

func (s *settler) count(settlements []duly.Settlement, lost []*duly.Delivery) {
	gone := make(map[*duly.Delivery]bool, len(lost))
	for _, d := range lost {
		gone[d] = true
	}
	s.counters.lost.Add(int64(len(lost)))
	for i := range settlements {
		if gone[settlements[i].Delivery] {
			continue
		}
		switch settlements[i].Action {
		case duly.Acked:
			s.counters.acked.Add(1)
		case duly.Dropped:
			s.counters.dropped.Add(1)
		case duly.Retried:
			s.counters.retried.Add(1)
		case duly.Released:
			s.counters.released.Add(1)
		case duly.Buried:
			s.counters.buried.Add(1)
		case duly.Repeated:
			s.counters.repeated.Add(1)
		}
	}
}
