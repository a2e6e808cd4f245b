package lock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrHeld means that another holds the lock. The error is a *HeldError.
var ErrHeld = errors.New("held by another")

// A HeldError says who holds a lock, and for how long at most if it is not
// extended. It matches [ErrHeld].
type HeldError struct {
	Name       string
	Owner      string // as its holder's Config has it
	RetryAfter time.Duration

	token string
}

func newHeldError(name, value string, left int64) *HeldError {
	_, token := split(value)
	return &HeldError{Name: name, Owner: ownerOf(value), RetryAfter: timeLeft(max(left, 1)), token: token}
}

// timeLeft is a time to live that Redis tells in ms: it knows longer ones than a
// Duration can be.
func timeLeft(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%q is held by %q for %v", e.Name, e.Owner, e.RetryAfter)
}

// Is makes it match ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// A Locker gives out leases on names. Its methods may be called concurrently. It
// holds a connection of its own only while somebody waits and a moment longer, and
// needs no closing.
type Locker struct {
	cfg      Config
	store    store
	lines    *lines
	stands   bool   // its waiters stand in line on Redis
	instance string // begins its tokens

	keeper keeper

	mu   sync.Mutex
	held map[*Lease]struct{} // guarded by mu: the leases that have not ended
}

// A store is where locks are: on one Redis, or on a quorum.
type store interface {
	key(name string) string
	take(ctx context.Context, a ask) (grant, error)
	extend(ctx context.Context, batch []*renewal)
	release(ctx context.Context, name, token string) (string, error)
	abandon(name, token string)
	operator
}

// An operator looks after locks from outside.
type operator interface {
	force(ctx context.Context, name string) (bool, error)
	inspect(ctx context.Context, name string) (Info, error)
}

// New returns a locker on a single Redis, a cluster or a sentinel group. It
// sends nothing. The client stays the caller's to close.
func New(rdb redis.UniversalClient, cfg Config) (*Locker, error) {
	if isNil(rdb) {
		return nil, fmt.Errorf("lock: %w: nil client", ErrInvalid)
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	n := newNode(rdb, cfg)
	return newLocker(single{n}, cfg, n.listener(), !cfg.Unfair), nil
}

func newLocker(s store, cfg Config, listener *listener, stands bool) *Locker {
	l := &Locker{
		cfg: cfg, store: s, lines: newLines(cfg, listener), stands: stands,
		instance: cfg.Owner + "#" + random(4) + "/", held: make(map[*Lease]struct{}),
	}
	l.keeper.store = s
	return l
}

func isNil(rdb redis.UniversalClient) bool {
	v := reflect.ValueOf(rdb)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// TryAcquire takes the lock of a name for ttl, or fails at once with a
// [*HeldError]; it does not overtake those who wait for a lock that has just
// become free. The lease is not renewed by itself. An error that matches
// [ErrUnknownOutcome] leaves the name locked for ttl at most: the lock is
// released in the background as far as Redis can be reached. [ErrExpired]: the
// answer took longer than ttl, which is how long TryAcquire takes at most.
func (l *Locker) TryAcquire(ctx context.Context, name string, ttl time.Duration) (*Lease, error) {
	if err := check(name, ttl); err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, ttl) // an answer that takes longer is worth nothing
	defer cancel()
	lease, err := l.take(limited, ask{name: name, token: l.newToken(), ttl: ttl})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrUnknownOutcome, ErrExpired)
	}
	return lease, l.report(name, began, lease, err)
}

// Acquire takes the lock of a name for ttl, waiting until ctx ends for whoever
// holds it; it then fails with an error that matches both ErrHeld and ctx.Err().
// Waiters have their turn in the order of their coming, across all processes,
// unless the locker is Unfair or on a quorum. The lease is not renewed by itself.
// Other errors are those of TryAcquire, and end the wait.
func (l *Locker) Acquire(ctx context.Context, name string, ttl time.Duration) (*Lease, error) {
	if err := check(name, ttl); err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	began := time.Now()
	lease, err := l.wait(ctx, ask{name: name, token: l.newToken(), ttl: ttl, stand: l.stands})
	return lease, l.report(name, began, lease, err)
}

// wait looks at a lock each time that there may be news, until it is had.
func (l *Locker) wait(ctx context.Context, a ask) (lease *Lease, err error) {
	w := l.lines.enter(l.store.key(a.name), a.token)
	defer func() { l.lines.leave(w, lease != nil) }()
	var held *HeldError
	for {
		lease, err = l.take(ctx, a)
		if err == nil {
			return lease, nil
		}
		if errors.As(err, &held) {
			l.lines.refused(w, held)
			if err = w.wait(ctx); err == nil {
				if !l.stands {
					a.token = l.newToken() // what is released of the last one is not to meet the next
				}
				continue
			}
		}
		if held != nil && l.stands {
			l.store.abandon(a.name, a.token) // its place in line, and what it may have been granted
		}
		if held != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", held, err)
		}
		return nil, err
	}
}

// take asks for a lock.
func (l *Locker) take(ctx context.Context, a ask) (*Lease, error) {
	g, err := l.store.take(ctx, a)
	if err != nil {
		return nil, err
	}
	lease, err := l.lease(a, g)
	if err != nil {
		l.store.abandon(a.name, a.token)
		return nil, err
	}
	if g.repair != nil {
		go g.repair(lease)
	}
	return lease, nil
}

// lease makes a lease of a grant, unless the answer took longer than its TTL.
func (l *Locker) lease(a ask, g grant) (*Lease, error) {
	if !time.Now().Before(validUntil(g.sent, a.ttl)) {
		return nil, ErrExpired
	}
	return newLease(l, a, g), nil
}

// report tells the observer how a wish for a lock ended, and names the error.
func (l *Locker) report(name string, began time.Time, lease *Lease, err error) error {
	event := Event{Kind: Acquired, Name: name, Took: time.Since(began), Err: err}
	var held *HeldError
	switch {
	case err == nil:
		event.Owner, event.Fence = l.cfg.Owner, lease.fence
	case errors.As(err, &held):
		event.Kind, event.Owner = Refused, held.Owner
	default:
		event.Kind = Failed
	}
	l.cfg.Observer(event)
	if err != nil {
		return fmt.Errorf("lock: acquire %q: %w", name, err)
	}
	return nil
}

// Do runs f while holding the lock of a name. It waits for the lock until ctx
// ends, renews it while f runs, and releases it in any case, also if f panics.
// The context of f ends when the lock is lost, with the lease's Err as cause;
// Do then returns that error joined with f's. A release that fails is not an
// error of Do: the lock ends with its TTL.
func (l *Locker) Do(ctx context.Context, name string, ttl time.Duration, f func(context.Context, *Lease) error) error {
	lease, err := l.Acquire(ctx, name, ttl)
	if err != nil {
		return err
	}
	return Leases{lease}.do(ctx, func(ctx context.Context) error { return f(ctx, lease) })
}

// Resume goes on with a lease that another process has handed over, by its
// token. The lock is extended to last for ttl from now, and the lease is like any
// other, with the fence that the other had; it is not renewed by itself.
// [ErrExpired] or [ErrLost] if the token does not hold the lock any more. After any
// other error it may still hold it, and Resume may be called again.
func (l *Locker) Resume(ctx context.Context, name, token string, ttl time.Duration) (*Lease, error) {
	if err := cmp.Or(check(name, ttl), checkText("token", token, maxToken)); err != nil {
		return nil, fmt.Errorf("lock: resume: %w", err)
	}
	began := time.Now()
	r := &renewal{ask: ask{name: name, token: token, ttl: ttl}}
	l.store.extend(ctx, []*renewal{r})
	lease, err := (*Lease)(nil), r.err
	if err == nil {
		if lease, err = l.lease(r.ask, grant{fence: r.fence, sent: r.sent}); err != nil {
			err = fmt.Errorf("%w: the answer took longer than %v", ErrUnknownOutcome, ttl)
		}
	}
	return lease, l.report(name, began, lease, err)
}

// ReleaseAll releases every lease of this locker that has not ended, and joins
// the errors.
func (l *Locker) ReleaseAll(ctx context.Context) error {
	l.mu.Lock()
	leases := make(Leases, 0, len(l.held))
	for lease := range l.held {
		leases = append(leases, lease)
	}
	l.mu.Unlock()
	return leases.Release(ctx)
}

// Key is the Redis key of a name's lock: KEYS[1] of a [Guarded] script.
func (l *Locker) Key(name string) string { return l.store.key(name) }

func (l *Locker) forget(lease *Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, lease)
}

// maxToken bounds a token that is given: of this package's, or of another's.
const maxToken = 512

// newToken makes a token that nobody can guess and an operator can read:
// "<owner>#<random>/<random>".
func (l *Locker) newToken() string { return l.instance + random(16) }

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
