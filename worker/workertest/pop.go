package workertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// Bounds that a queue has too.
const (
	maxBatch   = 500
	maxPage    = 1_000
	maxWait    = 24 * time.Hour // reported if nothing is known to come
	minLease   = 10 * time.Millisecond
	maxLease   = 24 * time.Hour
	maxCrashes = 3
	apart      = 100 * time.Millisecond // until a task that waits for its last chance asks again
)

// Pop leases up to n tasks that are due, the earliest first, for the given time,
// and reports how long it will be until there may be more: zero if there may be
// now, at most a day. n is 1 to 500, the lease 10 ms to 24 h.
//
// A lease that ran out makes its task due again with one more crash; the third in
// a row buries it.
func (s *Source) Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	if n < 1 || n > maxBatch {
		return nil, 0, s.wrap("pop", fmt.Errorf("%w: batch of %d, not between 1 and %d", worker.ErrInvalid, n, maxBatch))
	}
	if err := checkLease(lease); err != nil {
		return nil, 0, s.wrap("pop", err)
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, 0, s.wrap("pop", err)
	}
	defer end()
	now := s.now()
	s.reclaim(now)
	ds := s.lease(n, now, now.Add(lease))
	if len(ds) == n {
		return ds, 0, nil
	}
	return ds, s.wait(now), nil
}

func checkLease(d time.Duration) error {
	if d < minLease || d > maxLease {
		return fmt.Errorf("%w: lease %v is not between %v and %v", worker.ErrInvalid, d, minLease, maxLease)
	}
	return nil
}

// reclaim ends the leases that ran out.
func (s *Source) reclaim(now time.Time) {
	var over []*entry
	for _, e := range *s.states[Leased] {
		if !e.at.After(now) {
			over = append(over, e)
		}
	}
	slices.SortStableFunc(over, func(a, b *entry) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.fence, b.fence), a.due.Compare(b.due))
	})
	for _, e := range over {
		if s.replaced(e) {
			continue
		}
		e.crashes++
		if e.crashes >= maxCrashes {
			s.move(e, Dead, now)
			s.ended(e.buried())
		} else {
			s.move(e, Due, e.due)
		}
	}
}

// lease takes the first n tasks that may run now.
func (s *Source) lease(n int, now, stop time.Time) (ds []*duly.Delivery) {
	var head []*entry
	for _, e := range *s.states[Due] {
		if len(head) == n || e.at.After(now) {
			break
		}
		head = append(head, e)
	}
	head = s.try(head, now, stop)
	if len(head) > 0 {
		s.fence = max(s.fence+1, uint64(now.UnixMicro()))
	}
	for _, e := range head {
		e.due, e.fence = e.at, s.fence
		if e.crashes >= maxCrashes-1 {
			s.trial.fence = e.fence
		}
		s.move(e, Leased, stop)
		ds = append(ds, e.delivery(s.name, now))
	}
	return ds
}

// A trial is the lease of a task on its last chance, and when another may have
// one beside it.
type trial struct {
	of    *entry
	fence uint64
	end   time.Time
}

// try keeps of the head one task that one more crash would bury, unless another
// is on trial, as a queue does: else the one that kills workers would take those
// that run beside it to the dead letter.
func (s *Source) try(head []*entry, now, stop time.Time) (kept []*entry) {
	t := s.trial
	busy := now.Before(t.end) && t.of.state == Leased && t.of.fence == t.fence
	for _, e := range head {
		last := e.crashes >= maxCrashes-1
		if last && busy {
			s.move(e, Due, now.Add(apart))
			continue
		}
		if last {
			busy = true
			s.trial.of, s.trial.end = e, now.Add((stop.Sub(now) / 3).Truncate(time.Microsecond))
		}
		kept = append(kept, e)
	}
	return kept
}

// wait is how long until a task is due or a lease ends.
func (s *Source) wait(now time.Time) time.Duration {
	soon := maxWait
	for _, state := range []State{Due, Leased} {
		if first := *s.states[state]; len(first) > 0 {
			soon = min(soon, first[0].at.Sub(now))
		}
	}
	return max(soon, 0)
}
