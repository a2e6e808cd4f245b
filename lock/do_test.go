package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock"
)

func TestDoExcludes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const workers, rounds = 8, 10
		r.cfg.PollMin, r.cfg.PollMax = time.Millisecond, 5*time.Millisecond
		var count int // guarded by the lock alone, as the race detector sees
		var last uint64
		ctx := soon(t)
		var running sync.WaitGroup
		for range workers {
			locker, _ := r.newLocker(t, r.cfg)
			running.Go(func() {
				for range rounds {
					err := locker.Do(ctx, "a", time.Minute, func(_ context.Context, lease *lock.Lease) error {
						if lease.Fence() <= last {
							t.Errorf("fence %d follows %d", lease.Fence(), last)
						}
						last = lease.Fence()
						count++
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		if count != workers*rounds {
			t.Fatalf("counted %d of %d", count, workers*rounds)
		}
	})
}

func TestDoReturnsTheErrorOfItsFunction(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		failed := errors.New("out of stock")
		err := r.locker.Do(t.Context(), "a", time.Minute, func(ctx context.Context, lease *lock.Lease) error {
			if ctx.Err() != nil || !lease.Held() || r.value(t, "a") == "" {
				t.Error("f does not run under the lock")
			}
			return failed
		})
		if err != failed { //nolint:errorlint // it must be the very error, not one that wraps it
			t.Fatalf("got %v, want %v", err, failed)
		}
		if r.value(t, "a") != "" {
			t.Fatal("still locked")
		}
	})
}

func TestDoLetsItsFunctionRelease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		must(t, r.locker.Do(t.Context(), "a", time.Minute, func(ctx context.Context, lease *lock.Lease) error {
			must(t, lease.Release(ctx))
			finished(t, ctx.Done())
			wants(t, context.Cause(ctx), lock.ErrReleased)
			return nil
		}))
	})
}

// The function learns of the loss while its key may still be there: by the next
// renewal if Redis can be asked, else by the local deadline.
func TestDoEndsTheContextWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		story string
		ttl   time.Duration
		lose  func(*testing.T, *rig)
		cause error
	}{
		{"the key is deleted", 900 * time.Millisecond, func(t *testing.T, r *rig) { must(t, r.Del(t.Context(), r.key("a")).Err()) }, lock.ErrExpired},
		{"another takes it by force", 900 * time.Millisecond, func(t *testing.T, r *rig) { r.put(t, "a", "thief", time.Minute) }, lock.ErrLost},
		{"requests vanish", 400 * time.Millisecond, func(_ *testing.T, r *rig) { r.link.deaf.Store(true) }, lock.ErrExpired},
		{"replies vanish", 400 * time.Millisecond, func(_ *testing.T, r *rig) { r.link.mute.Store(true) }, lock.ErrExpired},
	} {
		t.Run(c.story, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, r *rig) {
				failed := errors.New("interrupted")
				err := r.locker.Do(t.Context(), "a", c.ttl, func(ctx context.Context, lease *lock.Lease) error {
					c.lose(t, r)
					lost := time.Now()
					finished(t, ctx.Done())
					if took := time.Since(lost); took > 5*time.Second {
						t.Errorf("told after %v", took)
					}
					wants(t, context.Cause(ctx), c.cause)
					wants(t, lease.Err(), c.cause)
					r.link.heal() // or the release would wait for its second
					return failed
				})
				wants(t, err, failed, c.cause)
			})
		})
	}
}

// With requests lost nothing renews the key, and the lease must end before it.
func TestLeaseEndsBeforeItsKey(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const ttl = 600 * time.Millisecond
		lease := r.take(t, "a", ttl)
		lease.KeepAlive()
		eventually(t, "a renewal", func() bool { return r.link.scripts.Load() > 2 || !lease.Held() })
		r.link.deaf.Store(true)
		sent := r.link.scripts.Load()
		eventually(t, "a lost renewal", func() bool { return r.link.scripts.Load() > sent || !lease.Held() })
		left := r.left(t, "a")
		expires := time.Now().Add(left)
		if until := lease.Until(); left > 0 && !until.Before(expires) {
			t.Fatalf("the lease ends %v after its key", until.Sub(expires))
		}
		finished(t, lease.Done())
		wants(t, lease.Err(), lock.ErrExpired)
	})
}

func TestDoReleasesOnPanic(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = r.locker.Do(t.Context(), "a", time.Minute, func(context.Context, *lock.Lease) error { panic("boom") })
		}()
		if got := r.value(t, "a"); got != "" {
			t.Fatalf("still locked: %q", got)
		}
	})
}

func TestDoReleasesWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		stop := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := r.locker.Do(ctx, "a", time.Minute, func(ctx context.Context, _ *lock.Lease) error {
			cancel(stop)
			finished(t, ctx.Done())
			return context.Cause(ctx)
		})
		if err != stop { //nolint:errorlint // the lock was not lost: nothing is added
			t.Fatalf("got %v, want %v", err, stop)
		}
		if got := r.value(t, "a"); got != "" {
			t.Fatalf("still locked: %q", got)
		}
	})
}

func TestDoDoesNotRunWithoutTheLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.take(t, "a", time.Minute)
		other, link := r.newLocker(t, r.cfg)
		ctx, cancel := context.WithCancel(t.Context())
		link.afterScripts(3, cancel)
		err := other.Do(ctx, "a", time.Minute, func(context.Context, *lock.Lease) error {
			t.Error("f ran")
			return nil
		})
		wants(t, err, lock.ErrHeld, context.Canceled)
	})
}
