package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Why a lease ended: what its Err returns.
var (
	// ErrExpired: its time was over, locally or in Redis.
	ErrExpired = errors.New("lease expired")

	// ErrLost: another holds the lock, though this lease had time left. The key
	// was removed or taken by force.
	ErrLost = errors.New("lease lost to another")

	// ErrReleased: Release was called.
	ErrReleased = errors.New("lease released")

	// ErrHandedOver: HandOver was called.
	ErrHandedOver = errors.New("lease handed over")
)

// A Lease is the right to a name until a moment. Its methods may be called
// concurrently.
type Lease struct {
	locker *Locker
	name   string
	token  string
	fence  uint64
	ttl    time.Duration // as acquired; KeepAlive renews by it
	since  time.Time
	done   chan struct{}
	place  int // in the keeper's schedule, from 1; guarded by the keeper

	releases atomic.Int32 // that were sent
	freed    atomic.Bool  // Redis has confirmed one

	mu     sync.Mutex // guards what follows
	until  time.Time
	expiry *time.Timer
	kept   bool // alive
	err    error
}

func newLease(l *Locker, a ask, g grant) *Lease {
	lease := &Lease{
		locker: l, name: a.name, token: a.token, fence: g.fence, ttl: a.ttl, since: time.Now(),
		done: make(chan struct{}), until: validUntil(g.sent, a.ttl),
	}
	lease.mu.Lock() // ReleaseAll and the timer wait until the lease is whole
	defer lease.mu.Unlock()
	l.mu.Lock()
	l.held[lease] = struct{}{}
	l.mu.Unlock()
	lease.expiry = time.AfterFunc(time.Until(lease.until), func() { _ = lease.Err() })
	return lease
}

// validUntil is the Redlock rule for the validity of a lock: its TTL counted
// from before the request, less 1 % for the drift between two clocks and 2 ms
// for the granularity of Redis's expiry (redis.io, 'Distributed locks').
func validUntil(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - ttl/100 - 2*time.Millisecond)
}

// Name is the name that is locked.
func (l *Lease) Name() string { return l.name }

// Token identifies the lease in Redis. Who knows it can release the lock.
func (l *Lease) Token() string { return l.token }

// Fence is the lease's fencing token: higher than that of any earlier lease on
// the name. It does not change when the lease is extended.
func (l *Lease) Fence() uint64 { return l.fence }

// Until is when the lease ends unless it is extended: by the monotonic clock of
// this process, and ahead of the moment at which Redis lets the lock go.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Held reports whether the lease has not ended. It asks no server.
func (l *Lease) Held() bool { return l.Err() == nil }

// Done is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err is nil while the lease is held, then ErrExpired, ErrLost, ErrReleased or
// ErrHandedOver.
func (l *Lease) Err() error { return l.end(nil) }

// over says that the lease has ended. No lease has not.
func (l *Lease) over() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// endsIn waits for a time, and says whether the lease has ended by then.
func (l *Lease) endsIn(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.done:
		return true
	case <-timer.C:
		return false
	}
}

// Extend makes the lease last for ttl from now at least; it never shortens it.
// An error that the lease has ended is its Err; after any other error the lease
// is held as long as before.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if err := check(l.name, ttl); err != nil {
		return fmt.Errorf("lock: extend: %w", err)
	}
	if err := l.extend(ctx, ttl); err != nil {
		return fmt.Errorf("lock: extend %q: %w", l.name, err)
	}
	return nil
}

func (l *Lease) extend(ctx context.Context, ttl time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	r := l.newRenewal(ttl)
	l.locker.store.extend(ctx, []*renewal{r})
	return l.renewed(r)
}

func (l *Lease) newRenewal(ttl time.Duration) *renewal {
	return &renewal{ask: ask{name: l.name, token: l.token, ttl: ttl, lease: l}, fence: l.fence}
}

// renewed takes note of what became of an extension.
func (l *Lease) renewed(r *renewal) error {
	err := r.err
	switch {
	case errors.Is(err, ErrExpired), errors.Is(err, ErrLost):
		err = l.end(r.err)
	case err == nil:
		err = l.prolong(validUntil(r.sent, r.ttl))
		if errors.Is(err, ErrExpired) {
			// It ended while the extension was on its way, and the lock need not
			// outlive it by so much.
			l.locker.store.abandon(l.name, l.token)
		}
	}
	l.tell(Event{Kind: Renewed, Took: time.Since(r.sent), Err: err})
	return err
}

// tell tells the observer what happened to the lease.
func (l *Lease) tell(e Event) {
	e.Name, e.Owner, e.Fence = l.name, l.locker.cfg.Owner, l.fence
	l.locker.cfg.Observer(e)
}

// Release gives the lock up, and is sent even if ctx has ended or ends; it then
// waits for a second more at most. Whatever it returns, the lease has ended and
// the lock is free after the TTL that was last asked for, at the latest. Errors:
// ErrExpired or ErrLost if the lock was no longer this lease's, ErrHandedOver if
// it is another's to release. Releasing again is harmless.
func (l *Lease) Release(ctx context.Context) error {
	was := l.end(ErrReleased)
	if l.freed.Load() {
		return nil
	}
	if errors.Is(was, ErrHandedOver) {
		return fmt.Errorf("lock: release %q: %w", l.name, was)
	}
	ctx, cancel := outlive(ctx)
	defer cancel()
	l.releases.Add(1)
	answer, err := l.locker.store.release(ctx, l.name, l.token)
	switch {
	case err != nil:
	case answer == "foreign":
		err = ErrLost
	case answer == "absent" && (!errors.Is(was, ErrReleased) || l.releases.Load() == 1):
		err = ErrExpired // no release before this one has taken it away
	default:
		l.freed.Store(true)
	}
	if err != nil {
		return fmt.Errorf("lock: release %q: %w", l.name, err)
	}
	return nil
}

// HandOver ends the lease and leaves the lock held, for another process to go on
// with: it is given the token, which it passes to [Locker.Resume]. The lock ends
// with the TTL that was last asked for, unless it is resumed. Nothing is sent. The
// error is why the lease had ended before.
func (l *Lease) HandOver() (token string, err error) {
	if err := l.end(ErrHandedOver); !errors.Is(err, ErrHandedOver) {
		return "", fmt.Errorf("lock: hand over %q: %w", l.name, err)
	}
	return l.token, nil
}

// outlive returns a context that ends cleanupTimeout after ctx.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = sleep(longer, cleanupTimeout)
		cancel()
	})
	return longer, func() { stop(); cancel() }
}

// KeepAlive renews the lease, each third of its TTL, until it ends. An error of
// a renewal is not yet a loss: it is tried again while the lease lasts. The
// renewals of all leases of a locker that are due together share a round trip.
func (l *Lease) KeepAlive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.kept && l.err == nil {
		l.kept = true
		first := time.Until(l.until) - l.ttl*2/3 // some of its time may be over
		l.locker.keeper.add(l, max(first, 0))
	}
}

// keepOn sets the next renewal, if there is to be one.
func (l *Lease) keepOn(in time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept && l.err == nil {
		l.locker.keeper.add(l, in)
	}
}

// keepNoLonger ends KeepAlive.
func (l *Lease) keepNoLonger() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = false
	l.locker.keeper.drop(l)
}

// prolong moves the end of the lease further off, unless it has ended.
func (l *Lease) prolong(until time.Time) error {
	if err := l.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && until.After(l.until) {
		l.until = until
		l.expiry.Reset(time.Until(until))
	}
	return l.err
}

// end ends the lease if its time is over, or for a reason if there is one. It
// returns why the lease has ended, which may be another reason.
func (l *Lease) end(reason error) error {
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	if !time.Now().Before(l.until) {
		reason = ErrExpired // the timer is late
	}
	if reason == nil {
		l.mu.Unlock()
		return nil
	}
	l.err = reason
	l.expiry.Stop()
	close(l.done)
	l.locker.keeper.drop(l)
	l.mu.Unlock()

	l.locker.forget(l)
	l.tell(Event{Kind: endings[reason], Took: time.Since(l.since), Err: reason})
	return reason
}

// endings are the events of a lease's end.
var endings = map[error]EventKind{
	ErrExpired: Lost, ErrLost: Lost, ErrReleased: Released, ErrHandedOver: HandedOver,
}
