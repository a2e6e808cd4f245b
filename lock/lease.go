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
)

// cleanupTimeout bounds what is sent on behalf of a caller who has gone.
const cleanupTimeout = time.Second

// A Lease is the right to a name until a moment. Its methods may be called
// concurrently.
type Lease struct {
	locker *Locker
	name   string
	token  string
	fence  uint64
	ttl    time.Duration // as acquired; KeepAlive renews by it
	done   chan struct{}
	freed  atomic.Bool // Redis has confirmed the release

	mu     sync.Mutex // guards what follows
	until  time.Time
	expiry *time.Timer
	keep   context.CancelFunc // stops KeepAlive
	err    error
}

func newLease(l *Locker, name, token string, fence uint64, sent time.Time, ttl time.Duration) *Lease {
	lease := &Lease{
		locker: l, name: name, token: token, fence: fence, ttl: ttl,
		done: make(chan struct{}), until: validUntil(sent, ttl),
	}
	lease.mu.Lock() // ReleaseAll and the timer wait until the lease is whole
	defer lease.mu.Unlock()
	l.mu.Lock()
	l.held[lease] = struct{}{}
	l.mu.Unlock()
	lease.expiry = time.AfterFunc(time.Until(lease.until), lease.expire)
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

// Err is nil while the lease is held, then ErrExpired, ErrLost or ErrReleased.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !time.Now().Before(l.until) {
		l.endLocked(ErrExpired) // the timer is late
	}
	return l.err
}

// Extend makes the lease last for ttl from now at least; it never shortens it.
// An error that the lease has ended is its Err; after any other error the lease
// is held as long as before.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if err := l.locker.check(l.name, ttl); err != nil {
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
	key, _, _ := l.locker.keys(l.name, ttl)
	sent := time.Now()
	reply, err := extendScript.Run(ctx, l.locker.rdb, []string{key}, l.token, ttl.Milliseconds())
	if err != nil {
		return err
	}
	switch word(reply) {
	case "absent":
		return l.end(ErrExpired)
	case "foreign":
		return l.end(ErrLost)
	}
	if err := l.prolong(validUntil(sent, ttl)); err != nil {
		// It ended while the extension was on its way, and the lock must not
		// outlive the lease.
		l.locker.abandon(context.WithoutCancel(ctx), key, l.token)
		return err
	}
	return nil
}

// Release gives the lock up, and is sent even if ctx has ended or ends; it then
// waits for a second more at most. Whatever it returns, the lease has ended and
// the lock is free after its TTL at the latest. Errors: ErrExpired or ErrLost if
// the lock was no longer this lease's. Releasing again is harmless.
func (l *Lease) Release(ctx context.Context) error {
	was := l.end(ErrReleased)
	if l.freed.Load() {
		return nil
	}
	ctx, cancel := outlive(ctx)
	defer cancel()
	key, _, _ := l.locker.keys(l.name, l.ttl)
	reply, err := releaseScript.Run(ctx, l.locker.rdb, []string{key}, l.token)
	switch {
	case err != nil:
	case word(reply) == "foreign":
		err = ErrLost
	case word(reply) == "absent" && !errors.Is(was, ErrReleased):
		err = was
	default:
		l.freed.Store(true)
	}
	if err != nil {
		return fmt.Errorf("lock: release %q: %w", l.name, err)
	}
	return nil
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
// a renewal is not yet a loss: it is tried again while the lease lasts.
func (l *Lease) KeepAlive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keep != nil || l.err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.keep = cancel
	go l.renew(ctx)
}

func (l *Lease) renew(ctx context.Context) {
	pause := l.ttl / 3
	for sleep(ctx, pause) == nil {
		attempt, cancel := context.WithTimeout(ctx, l.ttl/3)
		err := l.extend(attempt, l.ttl)
		cancel()
		if err == nil {
			pause = l.ttl / 3
		} else {
			pause = l.ttl / 20
		}
	}
}

func (l *Lease) expire() { _ = l.Err() }

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

// end ends the lease for a reason, unless it has ended; it returns the reason
// that holds.
func (l *Lease) end(reason error) error {
	if err := l.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.endLocked(reason)
	}
	return l.err
}

func (l *Lease) endLocked(reason error) {
	l.err = reason
	l.expiry.Stop()
	if l.keep != nil {
		l.keep()
	}
	close(l.done)
	l.locker.forget(l)
}

func (l *Locker) forget(lease *Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, lease)
}

// word is the first element of a script's reply.
func word(reply any) string {
	if words, _ := reply.([]any); len(words) > 0 {
		first, _ := words[0].(string)
		return first
	}
	return ""
}
