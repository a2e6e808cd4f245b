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
// now, at most a day. A task whose lock key another holds is parked until that
// one's lease ends or it is settled. n is 1 to 500, the lease 10 ms to 24 h.
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
	s.look(now)
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
		if e.over() {
			s.cut(e, now)
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
	due := slices.Clone(*s.states[Due])
	if len(due) > 0 && !due[0].at.After(now) {
		s.fence = max(s.fence+1, uint64(now.UnixMicro()))
	}
	for _, e := range due {
		if len(ds) == n || e.at.After(now) {
			break
		}
		last := e.crashes >= maxCrashes-1
		switch {
		case s.blocked(e):
			s.park(e)
		case last && s.trial.busy(now):
			s.move(e, Due, now.Add(apart))
		default:
			e.due, e.fence = e.at, s.fence
			if last {
				s.trial = trial{e, e.fence, now.Add((stop.Sub(now) / 3).Truncate(time.Microsecond))}
			}
			s.move(e, Leased, stop)
			s.hold(e)
			ds = append(ds, e.delivery(s.name, now))
		}
	}
	return ds
}

// A trial is the lease of a task that one more crash would bury. It has no other
// such beside it until it has settled or a third of its lease is over, as in a
// queue: else the task that kills workers would take those that run beside it to
// the dead letter.
type trial struct {
	of    *entry
	fence uint64
	end   time.Time
}

func (t trial) busy(now time.Time) bool {
	return now.Before(t.end) && t.of.state == Leased && t.of.fence == t.fence
}

// wait is how long until a task is due, a lease ends, or a lock key may be free.
func (s *Source) wait(now time.Time) time.Duration {
	soon := maxWait
	for _, state := range []State{Due, Leased} {
		if first := *s.states[state]; len(first) > 0 {
			soon = min(soon, first[0].at.Sub(now))
		}
	}
	for _, at := range s.looks {
		soon = min(soon, at.Sub(now))
	}
	return max(soon, 0)
}
