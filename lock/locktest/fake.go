package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// A Fake is a Redis in memory with the locker of one process on it: the process
// that is tested. Its methods may be called concurrently. They fail the test if
// they cannot do what they are for.
type Fake struct {
	tb     testing.TB
	cfg    lock.Config
	rdb    *redis.Client // which no fault touches
	link   *link         // of the process
	client *redis.Client // of the process
	locker *lock.Locker  // of the process
}

// New returns a fake that ends with the test: its leases are released and its
// clients are closed, also those of Another.
func New(tb testing.TB, cfg lock.Config) *Fake {
	tb.Helper()
	f := &Fake{tb: tb, cfg: cfg, rdb: redistest.Virtual(tb)(), link: newLink()}
	f.client, f.locker = f.process(f.link, cfg)
	return f
}

// Locker returns the locker of the process. It is always the same.
func (f *Fake) Locker() *lock.Locker { return f.locker }

// Client returns the client of the process, which its locker uses and other code
// may, for scripts that [lock.Guarded] makes or for a queue. It is always the same,
// and closed with the test.
func (f *Fake) Client() redis.UniversalClient { return f.client }

// Another returns a locker as another process would have it, with a client of its
// own. Break and Hang do not concern it.
func (f *Fake) Another() *lock.Locker {
	f.tb.Helper()
	_, locker := f.process(newLink(), f.cfg)
	return locker
}

// process returns what a process on a link has.
func (f *Fake) process(l *link, cfg lock.Config) (*redis.Client, *lock.Locker) {
	f.tb.Helper()
	opts := *f.rdb.Options()
	opts.Dialer = l.over(opts.Dialer)
	opts.ReadTimeout, opts.WriteTimeout = 0, 0 // as usual, so that what waits for a silent Redis gives up
	opts.DialerRetries = 1                     // and is refused at once by one that is broken
	client := redis.NewClient(&opts)
	locker, err := lock.New(client, cfg)
	if err != nil {
		f.tb.Fatalf("locktest: %v", err)
	}
	f.tb.Cleanup(func() {
		l.set(whole)
		_ = locker.ReleaseAll(context.Background()) // leases that the test has lost are errors
		_ = client.Close()
	})
	return client, locker
}

// Steal takes the lock of a name by force for ttl, whoever holds it, and returns
// the lease of the thief. The robbed holder finds [lock.ErrLost] at its next
// renewal or extension, or when it releases; the thief's fence is higher than
// its own. Release of the thief's lease gives the lock up.
func (f *Fake) Steal(name string, ttl time.Duration) *lock.Lease {
	f.tb.Helper()
	cfg := f.cfg
	cfg.Unfair = true // else it would have to wait
	_, thief := f.process(newLink(), cfg)
	var refused error
	for range 100 { // one who waits can be quicker
		f.Drop(name)
		lease, err := thief.TryAcquire(context.Background(), name, ttl)
		if err == nil {
			return lease
		}
		if refused = err; !errors.Is(err, lock.ErrHeld) {
			break
		}
	}
	f.tb.Fatalf("locktest: steal: %v", refused)
	return nil
}

// Drop removes the lock of a name from Redis, as a flush, an eviction or a
// failover may. The holder is not told, and another can take the lock; the holder
// finds [lock.ErrExpired] at its next renewal or extension, or [lock.ErrLost] if
// another was quicker.
func (f *Fake) Drop(name string) {
	f.tb.Helper()
	if err := lock.CheckName(name); err != nil {
		f.tb.Fatalf("locktest: drop: %v", err)
	}
	if err := f.rdb.Del(context.Background(), f.locker.Key(name)).Err(); err != nil {
		f.tb.Fatalf("locktest: drop %q: %v", name, err)
	}
}

// Break cuts the process off from Redis until Mend: connections end, and new ones
// are refused, so that every call fails at once. Its leases end by its own clock.
func (f *Fake) Break() { f.link.set(broken) }

// Hang cuts the process off from Redis until Mend, without a word: requests
// and replies vanish. Whoever asks for a lock waits until its context ends; Extend
// and Release give up after 5 s at most, by the timeouts that go-redis has.
// Its leases end by its own clock.
func (f *Fake) Hang() { f.link.set(silent) }

// Mend undoes Break and Hang. Replies that vanished do not come any more: calls
// that wait for them go on as after a broken connection.
func (f *Fake) Mend() { f.link.set(whole) }
