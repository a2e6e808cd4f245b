package locktest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/dulyhq/duly/lock"
)

var acquireCases = []testCase{
	{"a free lock is taken", freeIsTaken},
	{"a held lock is refused with the time left", heldIsRefused},
	{"a lock is held against its own locker too", notReentrant},
	{"names are locked apart", namesApart},
	{"any name within the bounds is taken", oddNames},
	{"bad arguments are refused", badArguments},
	{"an ended context takes nothing", endedContext},
	{"one of many takes a lock", oneOfMany},
	{"fences rise", fencesRise},
}

func freeIsTaken(r *rig) {
	before := time.Now()
	lease := r.take(r.open(), "a", long)
	if lease.Name() != r.name("a") || lease.Token() == "" || lease.Fence() == 0 {
		r.Errorf("the lease of %q has name %q, token %q, fence %d", r.name("a"), lease.Name(), lease.Token(), lease.Fence())
	}
	if until := lease.Until(); until.Before(before.Add(long*9/10)) || until.After(time.Now().Add(long)) {
		r.Errorf("a lease of %v ends after %v", long, until.Sub(before))
	}
	select {
	case <-lease.Done():
		r.Error("Done is closed")
	default:
	}
	if err := lease.Err(); err != nil || !lease.Held() {
		r.Errorf("the lease is not held: %v", err)
	}
	r.release(lease)
}

func heldIsRefused(r *rig) {
	mine, theirs := r.pair()
	r.take(mine, "a", long)
	if left := r.refused(theirs, "a"); left > long || left < long/2 {
		r.Errorf("a lock of %v is held for another %v", long, left)
	}
}

func notReentrant(r *rig) {
	mine := r.open()
	lease := r.take(mine, "a", long)
	r.refused(mine, "a")
	if !lease.Held() {
		r.Errorf("the lease ended: %v", lease.Err())
	}
}

func namesApart(r *rig) {
	mine, theirs := r.pair()
	a := r.take(mine, "a", long)
	b := r.take(theirs, "b", long)
	if a.Token() == b.Token() {
		r.Errorf("two leases have the token %q", a.Token())
	}
	r.release(a)
	r.refused(mine, "b")
	r.free(theirs, "a")
}

func oddNames(r *rig) {
	mine, theirs := r.pair()
	for _, n := range []string{
		"fence", "a", "a:fence", "a b\"'%s\\", "é", strings.Repeat("x", lock.MaxName-len(r.names)),
	} {
		r.take(mine, n, long)
		r.refused(theirs, n)
	}
}

func badArguments(r *rig) {
	l := r.open()
	refuses := func(what, name string, ttl time.Duration) {
		lease, err := l.TryAcquire(r.soon(), name, ttl)
		if lease != nil || !errors.Is(err, lock.ErrInvalid) {
			r.Errorf("TryAcquire, %s: lease %v, error %v; want ErrInvalid", what, lease, err)
		}
		lease, err = l.Acquire(r.soon(), name, ttl)
		if lease != nil || !errors.Is(err, lock.ErrInvalid) {
			r.Errorf("Acquire, %s: lease %v, error %v; want ErrInvalid", what, lease, err)
		}
		r.want("Do, "+what, l.Do(r.soon(), name, ttl, func(context.Context, *lock.Lease) error {
			r.Errorf("Do, %s: its function runs", what)
			return nil
		}), lock.ErrInvalid)
	}
	for what, name := range map[string]string{
		"no name": "", "a name over MaxName": strings.Repeat("x", lock.MaxName+1), "a name that is not UTF-8": "a\xff",
		"braces in the name": "{a}", "a control character in the name": "a\n",
	} {
		refuses(what, name, long)
	}
	lease := r.take(l, "a", long)
	for what, ttl := range map[string]time.Duration{"no TTL": 0, "a TTL below zero": -time.Second, "a TTL under MinTTL": lock.MinTTL - 1} {
		refuses(what, r.name("b"), ttl)
		r.want("Extend, "+what, lease.Extend(r.soon(), ttl), lock.ErrInvalid)
	}
	if !lease.Held() {
		r.Errorf("a bad extension ended the lease: %v", lease.Err())
	}
}

func endedContext(r *rig) {
	mine, theirs := r.pair()
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	_, err := mine.TryAcquire(ctx, r.name("a"), long)
	r.want("TryAcquire in an ended context", err, context.Canceled)
	_, err = mine.Acquire(ctx, r.name("a"), long)
	r.want("Acquire in an ended context", err, context.Canceled)
	r.free(theirs, "a")
}

func oneOfMany(r *rig) {
	const many = 8
	lockers := make([]*lock.Locker, many)
	for i := range lockers {
		lockers[i] = r.open()
	}
	errs := make([]error, many)
	var all sync.WaitGroup
	for i, l := range lockers {
		all.Go(func() { _, errs[i] = l.TryAcquire(r.Context(), r.name("a"), long) })
	}
	all.Wait()
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
		} else {
			r.want("TryAcquire of many", err, lock.ErrHeld)
		}
	}
	split := len(r.Nodes) > 1 && taken == 0 // a vote that none has won
	if taken != 1 && !split {
		r.Errorf("%d of %d took the lock, want 1", taken, many)
	}
}

func fencesRise(r *rig) {
	mine, theirs := r.pair()
	var last uint64
	rises := func(after string, lease *lock.Lease) *lock.Lease {
		if lease.Fence() <= last {
			r.Errorf("%s the fence is %d, before it was %d", after, lease.Fence(), last)
		}
		last = lease.Fence()
		return lease
	}
	r.release(rises("at first", r.take(mine, "a", long)))
	r.release(rises("after a release", r.take(theirs, "a", long)))
	rises("after a release", r.take(mine, "a", short))
	rises("after the lock has expired", r.await(theirs))
	r.drop(theirs)
	rises("after the lock was lost", r.take(mine, "a", long))
}
