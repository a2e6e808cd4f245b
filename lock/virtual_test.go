package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// virtual runs a test in virtual time: on miniredis, with a locker on a link and
// a client that looks at Redis.
func virtual(t *testing.T, test func(*testing.T, *lock.Locker, *link, *redis.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		probe := redistest.Virtual(t)()
		l, opts := new(link), *probe.Options()
		opts.Dialer = l.over(opts.Dialer)
		opts.MaxRetries, opts.ReadTimeout, opts.WriteTimeout = -1, -1, -1 // none; as read they mean the default
		client := redis.NewClient(&opts)
		defer func() { _ = client.Close() }()
		locker, err := lock.New(client, lock.Config{Prefix: "{v}:"})
		must(t, err)
		test(t, locker, l, probe)
		time.Sleep(time.Second) // a subscription outlives its last waiter by little
	})
}

func TestLeaseEndsExactlyAtItsLocalDeadline(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, _ *link, probe *redis.Client) {
		for _, ttl := range []time.Duration{lock.MinTTL, time.Second, 30 * time.Second} {
			sent := time.Now()
			lease, err := locker.TryAcquire(t.Context(), "a", ttl)
			must(t, err)
			validity := ttl - ttl/100 - 2*time.Millisecond
			if got := lease.Until().Sub(sent); got != validity {
				t.Errorf("TTL %v: Until is after %v, want %v", ttl, got, validity)
			}
			time.Sleep(validity - 1)
			if !lease.Held() {
				t.Errorf("TTL %v: it ended early", ttl)
			}
			finished(t, lease.Done())
			if got := time.Since(sent); got != validity {
				t.Errorf("TTL %v: Done after %v, want %v", ttl, got, validity)
			}
			wants(t, lease.Err(), lock.ErrExpired)
			if n, err := probe.Exists(t.Context(), "{v}:a").Result(); err != nil || n != 1 {
				t.Errorf("TTL %v: its key is gone before it: %v", ttl, err)
			}
			wants(t, lease.Extend(t.Context(), ttl), lock.ErrExpired)
			time.Sleep(time.Until(sent.Add(ttl))) // the key is gone then
			must(t, release(locker.TryAcquire(t.Context(), "a", ttl)))
		}
	})
}

// The key's time begins when Redis has the request, and that may be at once.
func TestLeaseCountsFromBeforeItsRequest(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, l *link, _ *redis.Client) {
		must(t, release(locker.TryAcquire(t.Context(), "a", time.Minute))) // Redis knows the script then
		l.delay(10 * time.Second)
		before := time.Now()
		lease, err := locker.TryAcquire(t.Context(), "a", time.Minute)
		must(t, err)
		if got, want := lease.Until().Sub(before), 59398*time.Millisecond; got != want || time.Since(before) != 10*time.Second {
			t.Errorf("after %v it lasts until %v after the request, want %v", time.Since(before), got, want)
		}
		l.delay(10 * time.Second)
		before = time.Now()
		must(t, lease.Extend(t.Context(), time.Hour))
		if got, want := lease.Until().Sub(before), 3563998*time.Millisecond; got != want {
			t.Errorf("it was extended until %v after the request, want %v", got, want)
		}
	})
}

func TestExtendMovesTheLocalDeadline(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, _ *link, _ *redis.Client) {
		lease, err := locker.TryAcquire(t.Context(), "a", time.Second)
		must(t, err)
		time.Sleep(900 * time.Millisecond)
		extended := time.Now()
		must(t, lease.Extend(t.Context(), time.Second))
		finished(t, lease.Done())
		if got, want := time.Since(extended), 988*time.Millisecond; got != want {
			t.Errorf("Done %v after the extension, want %v", got, want)
		}
	})
}

// The link takes requests but brings no reply, or takes none: the last renewal
// that was confirmed decides, and the key is still there.
func TestBlackHoledHolderStopsBeforeItsKeyExpires(t *testing.T) {
	t.Parallel()
	for story, fail := range map[string]func(*link){
		"requests vanish": func(l *link) { l.deaf.Store(true) },
		"replies vanish":  func(l *link) { l.mute.Store(true) },
	} {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T, locker *lock.Locker, l *link, probe *redis.Client) {
				err := locker.Do(t.Context(), "a", 3*time.Second, func(ctx context.Context, lease *lock.Lease) error {
					time.Sleep(2500 * time.Millisecond) // two renewals, after 1 s and 2 s
					fail(l)
					confirmed := lease.Until()
					finished(t, ctx.Done())
					wants(t, context.Cause(ctx), lock.ErrExpired)
					if now := time.Now(); !now.Equal(confirmed) {
						t.Errorf("told %v after the deadline", now.Sub(confirmed))
					}
					if n, err := probe.Exists(t.Context(), "{v}:a").Result(); err != nil || n != 1 {
						t.Errorf("the key is gone before the holder was told: %v", err)
					}
					return nil
				})
				wants(t, err, lock.ErrExpired)
			})
		})
	}
}

func TestKeepAliveForADay(t *testing.T) {
	t.Parallel()
	began := time.Now()
	virtual(t, func(t *testing.T, locker *lock.Locker, l *link, probe *redis.Client) {
		lease, err := locker.TryAcquire(t.Context(), "a", 5*time.Minute)
		must(t, err)
		lease.KeepAlive()
		for range 24 {
			time.Sleep(time.Hour)
			_, err := locker.TryAcquire(t.Context(), "a", 5*time.Minute)
			wants(t, err, lock.ErrHeld)
		}
		if !lease.Held() {
			t.Fatalf("it ended: %v", lease.Err())
		}
		if sent := l.scripts.Load(); sent < 24*12*3 || sent > 24*12*3+60 {
			t.Errorf("%d scripts in a day, want 3 a TTL and few more", sent)
		}
		must(t, lease.Release(t.Context()))
		if n, err := probe.Exists(t.Context(), "{v}:a").Result(); err != nil || n != 0 {
			t.Errorf("still locked: %v", err)
		}
	})
	t.Logf("a day took %v", time.Since(began))
}

// A link that is down for less than the lease lasts costs nothing.
func TestKeepAliveOutlastsAShortOutage(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, l *link, _ *redis.Client) {
		lease, err := locker.TryAcquire(t.Context(), "a", 3*time.Second)
		must(t, err)
		lease.KeepAlive()
		time.Sleep(900 * time.Millisecond)
		l.deaf.Store(true)
		time.Sleep(1200 * time.Millisecond) // the renewal at 1 s is lost, that at 2.15 s is not
		l.deaf.Store(false)
		time.Sleep(10 * time.Second)
		if !lease.Held() {
			t.Fatalf("it ended: %v", lease.Err())
		}
		must(t, lease.Release(t.Context()))
	})
}

// A request of a release that is lost leaves the lock for its TTL at most, and
// releasing again mends it.
func TestReleaseOutlivesItsContextByASecond(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, l *link, probe *redis.Client) {
		for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
			"ended": func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 0) },
			"ends":  func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Minute) },
		} {
			lease, err := locker.TryAcquire(t.Context(), name, time.Hour)
			must(t, err)
			ctx, cancel := ctx()
			deadline, _ := ctx.Deadline()
			l.deaf.Store(true)
			wants(t, lease.Release(ctx), lock.ErrUnknownOutcome)
			cancel()
			if took := time.Since(deadline); took != time.Second {
				t.Errorf("its context was outlived by %v, want a second", took)
			}
			l.deaf.Store(false)
			if n, err := probe.Exists(t.Context(), "{v}:"+name).Result(); err != nil || n != 1 {
				t.Errorf("the story is not told: the request was not lost: %v", err)
			}
			must(t, lease.Release(t.Context()))
			if n, err := probe.Exists(t.Context(), "{v}:"+name).Result(); err != nil || n != 0 {
				t.Errorf("still locked: %v", err)
			}
		}
	})
}

func TestWaiterGivesUpExactlyAtItsDeadline(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, _ *link, _ *redis.Client) {
		_, err := locker.TryAcquire(t.Context(), "a", time.Minute)
		must(t, err)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = locker.Acquire(ctx, "a", time.Minute)
		wants(t, err, lock.ErrHeld, context.DeadlineExceeded)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("gave up after %v, want 5 s", took)
		}
	})
}

// Nobody tells a waiter that a lock has expired: it looks when that may be, and
// else as often as it would take a message that was lost.
func TestWaiterLooksWhenTheLockMayBeFree(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, l *link, _ *redis.Client) {
		began := time.Now()
		_, err := locker.TryAcquire(t.Context(), "a", 10*time.Second)
		must(t, err)
		lease, err := locker.Acquire(t.Context(), "a", time.Second)
		must(t, err)
		if took := time.Since(began); took < 9990*time.Millisecond || took > 10010*time.Millisecond {
			t.Errorf("acquired after %v, want 10 s and a look", took)
		}
		if sent := l.scripts.Load(); sent > 12 {
			t.Errorf("%d scripts in 10 s, want a look in 3 s and few more", sent)
		}
		must(t, lease.Release(t.Context()))
	})
}

func TestWaiterPollsWhereNothingIsHeard(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, _ *lock.Locker, l *link, probe *redis.Client) {
		locker, err := lock.New(probe, lock.Config{Prefix: "{v}:", PollOnly: true})
		must(t, err)
		probe.AddHook(before{act: func() { l.sent() }})
		began := time.Now()
		_, err = locker.TryAcquire(t.Context(), "a", 10*time.Second)
		must(t, err)
		lease, err := locker.Acquire(t.Context(), "a", time.Second)
		must(t, err)
		if took := time.Since(began); took < 9990*time.Millisecond || took > 10200*time.Millisecond {
			t.Errorf("acquired after %v, want 10 s and one look", took)
		}
		if sent := l.scripts.Load(); sent < 100 || sent > 2000 {
			t.Errorf("%d looks in 10 s, want one in 5 to 100 ms", sent)
		}
		must(t, lease.Release(t.Context()))
	})
}
