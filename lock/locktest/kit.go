package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// A Harness is the Redis on which lockers are tested, and what opens them. Open
// and Nodes are required.
type Harness struct {
	// Open returns a locker as another process would have it: with clients of its
	// own. All are on the same Redis and have the same Prefix. It is called from
	// the goroutine of the test.
	Open func() *lock.Locker

	// Nodes are clients of the Redis, or of each node of a quorum. The kit removes
	// locks through them, to see how their loss is told.
	Nodes []redis.UniversalClient

	// Unfair tells that waiters are served in any order. Default: that they are
	// served in the order in which they came.
	Unfair bool
}

// TestLocker tests that lockers do all that package lock promises of them, each
// thing in a subtest named after it, with a harness of its own. The names of its
// locks are like no others, so that the Redis may be a shared one. It takes some
// seconds, for the clock of the Redis is real.
func TestLocker(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, newHarness(t)) })
	}
}

// A testCase is one thing that a locker must do. Its name says it.
type testCase struct {
	name string
	test func(*rig)
}

func cases() []testCase {
	return slices.Concat(acquireCases, waitCases, leaseCases, lossCases, doCases)
}

func (c testCase) run(tb testing.TB, h Harness) {
	tb.Helper()
	if h.Open == nil || len(h.Nodes) == 0 {
		tb.Fatal("locktest: a Harness needs Open and Nodes")
	}
	// Two runs of the kit on one Redis do not meet.
	c.test(&rig{TB: tb, Harness: h, names: fmt.Sprintf("kit-%x:", rand.Uint64())}) //nolint:gosec // no secret
}

// Times of the kit. The clock goes on while a test does, at whatever speed the
// machine has: what must not end during a test is long, and what must end is
// waited for.
const (
	long  = time.Hour
	short = 100 * time.Millisecond

	// kept is the TTL of a lease that is kept alive: a machine that stands still
	// for two thirds of it loses the lease.
	kept = 900 * time.Millisecond

	// patience is how long a test waits for what must come.
	patience = 20 * time.Second
)

// A rig is what a test works with.
type rig struct {
	testing.TB
	Harness
	names string
}

// name returns the name of a lock that only this run of a test knows.
func (r *rig) name(n string) string { return r.names + n }

// open returns a locker that gives up what it holds when the test ends.
func (r *rig) open() *lock.Locker {
	r.Helper()
	l := r.Open()
	if l == nil {
		r.Fatal("locktest: Open returns no locker")
	}
	r.Cleanup(func() { _ = l.ReleaseAll(context.Background()) }) // lost leases are errors
	return l
}

// pair returns the lockers of two processes.
func (r *rig) pair() (mine, theirs *lock.Locker) {
	r.Helper()
	return r.open(), r.open()
}

// soon is a context for what would otherwise wait for ever if it fails.
func (r *rig) soon() context.Context {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	r.Cleanup(cancel)
	return ctx
}

// take takes a lock that must be free.
func (r *rig) take(l *lock.Locker, n string, ttl time.Duration) *lock.Lease {
	r.Helper()
	lease, err := l.TryAcquire(r.soon(), r.name(n), ttl)
	if err != nil {
		r.Fatalf("TryAcquire of a free lock: %v", err)
	}
	return lease
}

// await takes the lock "a", which must become free, for long.
func (r *rig) await(l *lock.Locker) *lock.Lease {
	r.Helper()
	lease, err := l.Acquire(r.soon(), r.name("a"), long)
	if err != nil {
		r.Fatalf("Acquire of a lock that becomes free: %v", err)
	}
	return lease
}

// refused tries to take a lock that must be held, and returns the time left.
func (r *rig) refused(l *lock.Locker, n string) time.Duration {
	r.Helper()
	lease, err := l.TryAcquire(r.soon(), r.name(n), long)
	held, ok := errors.AsType[*lock.HeldError](err)
	if lease != nil || !ok || !errors.Is(err, lock.ErrHeld) {
		r.Fatalf("TryAcquire of a held lock: lease %v, error %v; want a *HeldError", lease, err)
	}
	if held.Name != r.name(n) || held.RetryAfter <= 0 {
		r.Errorf("the HeldError of %q names %q, to be tried after %v", r.name(n), held.Name, held.RetryAfter)
	}
	return held.RetryAfter
}

// release gives a lease up that must be held.
func (r *rig) release(lease *lock.Lease) {
	r.Helper()
	if err := lease.Release(r.soon()); err != nil {
		r.Fatalf("Release of a lease that is held: %v", err)
	}
}

// free checks that a lock can be taken.
func (r *rig) free(l *lock.Locker, n string) {
	r.Helper()
	r.release(r.take(l, n, long))
}

// drop removes the lock "a" from Redis.
func (r *rig) drop(l *lock.Locker) {
	r.Helper()
	for _, node := range r.Nodes {
		if err := node.Del(r.soon(), l.Key(r.name("a"))).Err(); err != nil {
			r.Fatalf("DEL of a lock: %v", err)
		}
	}
}

// ended waits until a lease or a context has ended.
func (r *rig) ended(done <-chan struct{}) {
	r.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		r.Fatalf("it has not ended in %v", patience)
	}
}

// want checks that an error matches each of the targets. The nodes of a quorum may
// not be of one mind whether a lease that is over was lost or has expired.
func (r *rig) want(what string, err error, targets ...error) {
	r.Helper()
	over := func(err error) bool { return errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrExpired) }
	for _, target := range targets {
		if !errors.Is(err, target) && (len(r.Nodes) == 1 || !over(err) || !over(target)) {
			r.Errorf("%s: error %v, want one that matches %q", what, err, target)
		}
	}
}
