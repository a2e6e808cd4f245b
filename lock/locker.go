package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// MaxName is the longest name of a lock, in bytes.
const MaxName = 512

// MinTTL is the shortest TTL of a lock: below it the allowance for drift would
// leave too little to work with.
const MinTTL = 10 * time.Millisecond

// Errors of a call that has not reached Redis, and of a lock held elsewhere.
var (
	// ErrInvalid: an argument is out of its bounds.
	ErrInvalid = errors.New("invalid argument")

	// ErrHeld: another holds the lock. The error is a *HeldError.
	ErrHeld = errors.New("held by another")
)

// A HeldError says how long the lock is still held by another, at most, if its
// holder does not extend it. It matches [ErrHeld].
type HeldError struct {
	Name       string
	RetryAfter time.Duration
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%q is held by another for %v", e.Name, e.RetryAfter)
}

// Is makes it match ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Config holds a locker's settings; the zero value is ready to use.
type Config struct {
	// Prefix begins the key of every lock. With a hash tag in it, such as
	// "shop:{orders}:", all names share one cluster slot and one fence counter;
	// without, every name is a hash tag of its own. Default: "duly:lock:".
	Prefix string

	// FenceKey is the fence counter that all names share. It needs a Prefix
	// with a hash tag, and has the same tag. Default: Prefix + "{fence}", which
	// no name can spell.
	FenceKey string

	// PollMin and PollMax bound the random pause between two looks at a lock
	// that another holds. Default: 5 ms and 100 ms.
	PollMin, PollMax time.Duration

	// AdoptTTL is given to a lock that is found without a TTL. Default: 30 s;
	// at least 10 ms.
	AdoptTTL time.Duration
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "duly:lock:"
	}
	if tag, braces := hashTag(c.Prefix); c.FenceKey == "" && braces && tag != "" {
		c.FenceKey = c.Prefix + "{fence}"
	}
	if c.PollMin == 0 {
		c.PollMin = 5 * time.Millisecond
	}
	if c.PollMax == 0 {
		c.PollMax = max(100*time.Millisecond, c.PollMin)
	}
	if c.AdoptTTL == 0 {
		c.AdoptTTL = 30 * time.Second
	}
	return c
}

func (c Config) validate() error {
	tag, braces := hashTag(c.Prefix)
	fenceTag, _ := hashTag(c.FenceKey)
	switch {
	case c.PollMin < time.Millisecond || c.PollMax < c.PollMin:
		return fmt.Errorf("%w: PollMin %v and PollMax %v: need 1ms ≤ PollMin ≤ PollMax", ErrInvalid, c.PollMin, c.PollMax)
	case c.AdoptTTL < MinTTL:
		return fmt.Errorf("%w: AdoptTTL %v is under %v", ErrInvalid, c.AdoptTTL, MinTTL)
	case braces && tag == "":
		return fmt.Errorf("%w: Prefix %q has an empty hash tag", ErrInvalid, c.Prefix)
	case c.FenceKey != "" && (!braces || fenceTag != tag):
		return fmt.Errorf("%w: FenceKey %q needs the hash tag of Prefix %q", ErrInvalid, c.FenceKey, c.Prefix)
	}
	return nil
}

// hashTag is what Redis Cluster takes the slot of a key from, if it is not
// empty: what stands between its first brace and the next that closes.
func hashTag(key string) (tag string, braces bool) {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, braces = strings.Cut(rest, "}")
	return tag, braces
}

// A Locker gives out leases on names. Its methods may be called concurrently.
type Locker struct {
	rdb redis.UniversalClient
	cfg Config

	mu   sync.Mutex
	held map[*Lease]struct{} // guarded by mu: the leases that have not ended
}

// New returns a locker on a single Redis, a cluster or a sentinel group. It
// sends nothing. The client stays the caller's to close.
func New(rdb redis.UniversalClient, cfg Config) (*Locker, error) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("lock: %w: nil client", ErrInvalid)
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return &Locker{rdb: rdb, cfg: cfg, held: make(map[*Lease]struct{})}, nil
}

// CheckName reports why a name cannot be a lock's: it is 1 to 512 bytes of
// valid UTF-8 without control characters and without braces, which would move
// its cluster slot. The error matches [ErrInvalid].
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty name", ErrInvalid)
	case len(name) > MaxName:
		return fmt.Errorf("%w: name of %d bytes, over %d", ErrInvalid, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: name %q is not UTF-8", ErrInvalid, name)
	case strings.ContainsFunc(name, func(r rune) bool { return r == '{' || r == '}' || unicode.IsControl(r) }):
		return fmt.Errorf("%w: name %q has a brace or a control character", ErrInvalid, name)
	}
	return nil
}

// TryAcquire takes the lock of a name for ttl, or fails at once with a
// [*HeldError]. The lease is not renewed by itself. An error that matches
// [ErrUnknownOutcome] leaves the name locked for ttl at most: the lock is
// released in the background as far as Redis can be reached. [ErrExpired]: the
// answer took longer than ttl.
func (l *Locker) TryAcquire(ctx context.Context, name string, ttl time.Duration) (*Lease, error) {
	if err := l.check(name, ttl); err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	lease, err := l.acquire(ctx, name, newToken(), ttl)
	if err != nil {
		return nil, fmt.Errorf("lock: acquire %q: %w", name, err)
	}
	return lease, nil
}

// Acquire takes the lock of a name for ttl, waiting until ctx ends for whoever
// holds it; it then fails with an error that matches both ErrHeld and ctx.Err().
// The lease is not renewed by itself.
func (l *Locker) Acquire(ctx context.Context, name string, ttl time.Duration) (*Lease, error) {
	if err := l.check(name, ttl); err != nil {
		return nil, fmt.Errorf("lock: acquire: %w", err)
	}
	token := newToken()
	var held *HeldError
	for {
		lease, err := l.acquire(ctx, name, token, ttl)
		if err == nil {
			return lease, nil
		}
		if errors.As(err, &held) {
			err = sleep(ctx, min(held.RetryAfter, l.pause()))
		}
		switch {
		case err == nil:
		case held != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("lock: acquire %q: %w: %w", name, held, err)
		default:
			return nil, fmt.Errorf("lock: acquire %q: %w", name, err)
		}
	}
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
	lease.KeepAlive()
	defer func() { _ = lease.Release(ctx) }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-lease.Done():
			cancel(lease.Err())
		case <-ctx.Done():
		}
	}()
	err = f(ctx, lease)
	if lost := lease.Err(); lost != nil && !errors.Is(lost, ErrReleased) {
		return errors.Join(err, fmt.Errorf("lock: %q: %w", name, lost))
	}
	return err
}

// ReleaseAll releases every lease of this locker that has not ended, and joins
// the errors.
func (l *Locker) ReleaseAll(ctx context.Context) error {
	l.mu.Lock()
	leases := make([]*Lease, 0, len(l.held))
	for lease := range l.held {
		leases = append(leases, lease)
	}
	l.mu.Unlock()
	errs := make([]error, len(leases))
	for i, lease := range leases {
		errs[i] = lease.Release(ctx)
	}
	return errors.Join(errs...)
}

func (l *Locker) check(name string, ttl time.Duration) error {
	if ttl < MinTTL {
		return fmt.Errorf("%w: TTL %v is under %v", ErrInvalid, ttl, MinTTL)
	}
	return CheckName(name)
}

// keys returns the Redis keys of a name, and how long its fence is kept: for
// ever if shared, else for long enough that the server's clock has passed it.
func (l *Locker) keys(name string, ttl time.Duration) (lock, fence string, keep time.Duration) {
	if l.cfg.FenceKey != "" {
		return l.cfg.Prefix + name, l.cfg.FenceKey, 0
	}
	lock = l.cfg.Prefix + "{" + name + "}"
	return lock, lock + ":fence", max(ttl, ttl+24*time.Hour) // the sum may overflow
}

// acquire asks once for the lock, and again while it is not known whether the
// token has it. It is safe to ask again: the same token gets the same answer.
func (l *Locker) acquire(ctx context.Context, name, token string, ttl time.Duration) (*Lease, error) {
	key, fenceKey, keep := l.keys(name, ttl)
	pause := l.cfg.PollMin
	for doubt := false; ; doubt = true {
		sent := time.Now()
		call := acquireScript.begin(ctx, l.rdb, []string{key, fenceKey},
			token, ttl.Milliseconds(), l.cfg.AdoptTTL.Milliseconds(), keep.Milliseconds())
		reply, err := call.wait(ctx)
		if err == nil {
			return l.answer(ctx, reply, name, token, ttl, sent)
		}
		unknown := errors.Is(err, ErrUnknownOutcome)
		if unknown && sleep(ctx, pause) == nil {
			pause = min(2*pause, time.Second)
			continue
		}
		if !unknown && !doubt {
			return nil, err
		}
		go func() {
			<-call.done // else the release could overtake it
			l.abandon(context.WithoutCancel(ctx), key, token)
		}()
		if !unknown { // it says nothing about the request before
			err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		}
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
			err = fmt.Errorf("%w: %w", err, ended)
		}
		return nil, err
	}
}

func (l *Locker) answer(ctx context.Context, reply any, name, token string, ttl time.Duration, sent time.Time) (*Lease, error) {
	words, _ := reply.([]any)
	if len(words) == 3 && words[0] == "held" {
		left, _ := words[1].(int64)
		return nil, &HeldError{Name: name, RetryAfter: time.Duration(max(left, 1)) * time.Millisecond}
	}
	if len(words) == 2 && words[0] == "ok" {
		digits, _ := words[1].(string)
		fence, err := strconv.ParseUint(digits, 10, 64)
		if err == nil {
			lease := newLease(l, name, token, fence, sent, ttl)
			if !errors.Is(lease.Err(), ErrExpired) {
				return lease, nil
			}
			go func() { _ = lease.Release(ctx) }()
			return nil, ErrExpired // the answer took longer than ttl
		}
	}
	return nil, fmt.Errorf("unexpected reply %v", reply)
}

// abandon releases a lock of which it is not known whether it was taken.
func (l *Locker) abandon(ctx context.Context, key, token string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	_, _ = releaseScript.Run(ctx, l.rdb, []string{key}, token)
}

func (l *Locker) pause() time.Duration {
	return l.cfg.PollMin + mathrand.N(l.cfg.PollMax-l.cfg.PollMin+1) //nolint:gosec // spreads load, secures nothing
}

func newToken() string {
	var token [16]byte
	_, _ = rand.Read(token[:]) // never fails
	return hex.EncodeToString(token[:])
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
