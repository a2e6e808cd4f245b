package locktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dulyhq/duly/lock"
)

var waitCases = []testCase{
	{"a waiter gets a lock that is released", waitForRelease},
	{"a waiter gets a lock that expires", waitForExpiry},
	{"a waiter gets a lock that is lost", waitForLoss},
	{"waiting ends with its context", waitEnds},
	{"a waiter who gave up holds up nobody", waiterLeaves},
	{"waiters are served in the order in which they came", firstComeFirstServed},
	{"a lock has one holder at a time", oneAtATime},
}

// arrival is far more than a waiter takes to be known to Redis, where it does not
// stand in a line that can be seen.
const arrival = 100 * time.Millisecond

// A waiter is an Acquire under way.
type waiter struct {
	done  chan struct{} // closed when it has returned
	lease *lock.Lease
	err   error
}

// wait lets a locker wait for the lock "a", which is held.
func (r *rig) wait(ctx context.Context, l *lock.Locker) *waiter {
	w := &waiter{done: make(chan struct{})}
	before := r.waiters(l)
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Acquire(ctx, r.name("a"), long)
	}()
	r.Cleanup(func() { <-w.done })
	for deadline := time.Now().Add(patience); !r.Unfair && r.waiters(l) == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatal("a waiter does not stand in line")
		}
	}
	if r.Unfair {
		time.Sleep(arrival)
	}
	return w
}

// waiters is how many wait for the lock "a", as far as is to be seen.
func (r *rig) waiters(l *lock.Locker) int {
	r.Helper()
	info, err := l.Inspect(r.Context(), r.name("a"))
	if err != nil {
		r.Fatalf("Inspect: %v", err)
	}
	return info.Waiters
}

// got waits until a waiter has the lock.
func (r *rig) got(w *waiter) *lock.Lease {
	r.Helper()
	r.ended(w.done)
	if w.err != nil {
		r.Fatalf("Acquire of a lock that becomes free: %v", w.err)
	}
	return w.lease
}

func waitForRelease(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", long)
	w := r.wait(r.soon(), theirs)
	select {
	case <-w.done:
		r.Fatalf("Acquire of a held lock returned: %v", w.err)
	default:
	}
	r.release(lease)
	r.refusedAfter(mine, r.got(w))
}

// refusedAfter checks that a lock that was waited for is held.
func (r *rig) refusedAfter(l *lock.Locker, lease *lock.Lease) {
	r.Helper()
	if !lease.Held() {
		r.Errorf("the lease that was waited for is not held: %v", lease.Err())
	}
	r.refused(l, "a")
}

func waitForExpiry(r *rig) {
	mine, theirs := r.pair()
	old := r.take(mine, "a", short)
	next := r.await(theirs)
	if old.Held() {
		r.Error("the lock has a second holder, and the first does not know that its lease is over")
	}
	r.ended(old.Done())
	r.want("Err of a lease whose time is over", old.Err(), lock.ErrExpired)
	r.refusedAfter(mine, next)
}

func waitForLoss(r *rig) {
	mine, theirs := r.pair()
	r.take(mine, "a", long)
	w := r.wait(r.soon(), theirs)
	r.drop(mine)
	r.refusedAfter(mine, r.got(w))
}

func waitEnds(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", long)
	ctx, cancel := context.WithCancel(r.Context())
	w := r.wait(ctx, theirs)
	cancel()
	r.ended(w.done)
	r.want("Acquire when its context ends", w.err, context.Canceled)
	// The end can come between a request and its reply.
	if !errors.Is(w.err, lock.ErrHeld) && !errors.Is(w.err, lock.ErrUnknownOutcome) {
		r.Errorf("Acquire when its context ends: error %v, want ErrHeld", w.err)
	}
	if !lease.Held() {
		r.Errorf("waiting ended the lease of the holder: %v", lease.Err())
	}
	r.refused(theirs, "a")
}

func waiterLeaves(r *rig) {
	mine, theirs := r.pair()
	third := r.open()
	lease := r.take(mine, "a", long)
	ctx, cancel := context.WithCancel(r.Context())
	gone := r.wait(ctx, theirs)
	patient := r.wait(r.soon(), third)
	cancel()
	r.ended(gone.done)
	r.release(lease)
	r.release(r.got(patient))
	r.free(mine, "a")
}

func firstComeFirstServed(r *rig) {
	if r.Unfair {
		r.Skip("skipped: the lockers are unfair")
	}
	const many = 5
	lease := r.take(r.open(), "a", long)
	var order []int // guarded by the lock, and by all at the end
	var all sync.WaitGroup
	waiters := make([]*waiter, many)
	for i := range waiters {
		w := r.wait(r.soon(), r.open())
		waiters[i] = w
		all.Go(func() {
			if <-w.done; w.err == nil {
				order = append(order, i)
				_ = w.lease.Release(context.Background())
			}
		})
	}
	r.release(lease)
	for _, w := range waiters {
		r.got(w)
	}
	all.Wait()
	if !slices.IsSorted(order) {
		r.Errorf("the waiters got the lock in the order %v", order)
	}
}

func oneAtATime(r *rig) {
	const processes, rounds = 4, 8
	var count int // guarded by the lock alone, as the race detector sees
	var last uint64
	var all sync.WaitGroup
	for range processes {
		l, ctx := r.open(), r.soon()
		all.Go(func() {
			for range rounds {
				err := l.Do(ctx, r.name("a"), long, func(_ context.Context, lease *lock.Lease) error {
					if lease.Fence() <= last {
						r.Errorf("fence %d follows %d", lease.Fence(), last)
					}
					last = lease.Fence()
					count++
					return nil
				})
				if err != nil {
					r.Errorf("Do: %v", err)
				}
			}
		})
	}
	all.Wait()
	if count != processes*rounds {
		r.Errorf("counted %d of %d", count, processes*rounds)
	}
}
