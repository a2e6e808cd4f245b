package lock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

func TestExtend(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lease := r.take(t, "a", 10*time.Second)
		fence, stored := lease.Fence(), r.value(t, "a")
		sent := time.Now()
		must(t, lease.Extend(t.Context(), time.Minute))
		if left := lease.Until().Sub(sent); left < 59*time.Second || left > time.Minute {
			t.Fatalf("extended to %v, want 1 m less the drift", left)
		}
		if left := r.left(t, "a"); left < 50*time.Second || left > time.Minute {
			t.Fatalf("the key lives for %v", left)
		}
		if lease.Fence() != fence || r.value(t, "a") != stored {
			t.Fatal("extending changed the lock itself")
		}
		wants(t, lease.Extend(t.Context(), time.Millisecond), lock.ErrInvalid)
		if !lease.Held() {
			t.Fatal("a refused extension ended the lease")
		}
	})
}

// A short extension that is late on the network must not cut down a longer one
// that came before it: the holder would not know.
func TestExtendNeverShortens(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lease := r.take(t, "a", time.Minute)
		until := lease.Until()
		must(t, lease.Extend(t.Context(), 10*time.Second))
		if lease.Until().Before(until) {
			t.Fatal("the lease became shorter")
		}
		if left := r.left(t, "a"); left < 50*time.Second {
			t.Fatalf("the key lives for %v, the lease for %v", left, time.Until(lease.Until()))
		}
	})
}

func TestLossIsReported(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			name string
			lose func(name string)
			want error
		}{
			{"deleted", func(name string) { must(t, r.Del(t.Context(), r.key(name)).Err()) }, lock.ErrExpired},
			{"taken", func(name string) { r.put(t, name, "thief", time.Minute) }, lock.ErrLost},
		} {
			lease := r.take(t, c.name, time.Minute)
			c.lose(c.name)
			wants(t, lease.Extend(t.Context(), time.Minute), c.want)
			finished(t, lease.Done())
			if lease.Held() || !errors.Is(lease.Err(), c.want) {
				t.Fatalf("%s: Held %v, Err %v", c.name, lease.Held(), lease.Err())
			}
			wants(t, lease.Extend(t.Context(), time.Minute), c.want)
			wants(t, lease.Release(t.Context()), c.want)
		}
		if r.value(t, "taken") != "thief" || r.value(t, "deleted") != "" {
			t.Fatal("a lost lease changed the lock")
		}
	})
}

// The owner is compared whole: Redis scripts that compare a prefix have let
// 'worker-1' take the lock of 'worker-10'.
func TestWholeTokenIsCompared(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for name, foreign := range map[string]func(own string) string{
			"prefix":       func(own string) string { return own[:len(own)-1] },
			"superstring":  func(own string) string { return own + "0" },
			"second colon": func(own string) string { return "1:" + own },
			"no fence":     func(own string) string { return own[len(own)-32:] },
			"empty fence":  func(own string) string { return ":" + own[len(own)-32:] },
			"other case":   func(own string) string { return own + "\n" },
		} {
			lease := r.take(t, name, time.Minute)
			theirs := foreign(r.value(t, name))
			unchanged := func(after string) {
				t.Helper()
				if got, left := r.value(t, name), r.left(t, name); got != theirs || left < 59*time.Minute {
					t.Fatalf("%s: %s changed the lock to %q for %v", name, after, got, left)
				}
			}
			r.put(t, name, theirs, time.Hour)
			reply, err := guardedPing.Run(t.Context(), r.client(t, new(link)), []string{r.key(name)}, lease.Token(), 1000)
			must(t, err)
			if word(reply) != "locked" {
				t.Fatalf("%s: the guard let the lease pass", name)
			}
			wants(t, lease.Extend(t.Context(), 2*time.Hour), lock.ErrLost)
			unchanged("Extend")
			wants(t, lease.Release(t.Context()), lock.ErrLost)
			unchanged("Release")
		}
	})
}

func TestReleaseIsSentOnAnEndedContext(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		lease := r.take(t, "a", time.Minute)
		cancel()
		must(t, lease.Release(ctx))
		if got := r.value(t, "a"); got != "" {
			t.Fatalf("still locked: %q", got)
		}
	})
}

func TestReleaseIsSentThoughItsContextEnds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		client := r.client(t, new(link))
		locker, err := lock.New(client, r.cfg)
		must(t, err)
		lease, err := locker.TryAcquire(ctx, "a", time.Minute)
		must(t, err)
		client.AddHook(before{act: cancel})
		must(t, lease.Release(ctx))
		if got := r.value(t, "a"); got != "" {
			t.Fatalf("still locked: %q", got)
		}
	})
}

// before is a hook that acts when a command is about to be sent.
type before struct {
	hooks
	act func()
}

func (h before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.act()
		return next(ctx, cmd)
	}
}

func TestReleaseAgainIsHarmless(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lease := r.take(t, "a", time.Minute)
		must(t, lease.Release(t.Context()))
		finished(t, lease.Done())
		wants(t, lease.Err(), lock.ErrReleased)
		must(t, lease.Release(t.Context()))
		wants(t, lease.Extend(t.Context(), time.Minute), lock.ErrReleased)

		next := r.take(t, "a", time.Minute)
		must(t, lease.Release(t.Context()))
		must(t, next.Extend(t.Context(), time.Minute))
		if !next.Held() || r.value(t, "a") == "" {
			t.Fatal("releasing again took the lock from the next holder")
		}
	})
}

func TestReleaseAfterTheEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const ttl = 300 * time.Millisecond
		expired, late := r.take(t, "expired", ttl), r.take(t, "a", ttl)
		finished(t, expired.Done())
		wants(t, expired.Err(), lock.ErrExpired)
		eventually(t, "the keys expire", func() bool { return r.value(t, "expired")+r.value(t, "a") == "" })
		wants(t, expired.Release(t.Context()), lock.ErrExpired)
		next := r.take(t, "a", time.Minute)
		wants(t, late.Release(t.Context()), lock.ErrLost)
		must(t, next.Extend(t.Context(), time.Minute))

		robbed := r.take(t, "b", time.Minute)
		r.put(t, "b", "thief", time.Minute)
		wants(t, robbed.Release(t.Context()), lock.ErrLost)
		if r.value(t, "b") != "thief" {
			t.Fatal("a lost lease freed another's lock")
		}
	})
}

func TestReleaseAll(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		must(t, r.locker.ReleaseAll(t.Context()))
		names := []string{"a", "b", "c", "d"}
		leases := make([]*lock.Lease, len(names))
		for i, name := range names {
			leases[i] = r.take(t, name, time.Minute)
		}
		other, _ := r.newLocker(t, r.cfg)
		theirs, err := other.TryAcquire(t.Context(), "theirs", time.Minute)
		must(t, err)
		must(t, leases[0].Release(t.Context()))
		r.put(t, "b", "thief", time.Minute)

		wants(t, r.locker.ReleaseAll(t.Context()), lock.ErrLost)
		for i, name := range names {
			if leases[i].Held() || r.value(t, name) != "" && name != "b" {
				t.Errorf("%s: held %v, stored %q", name, leases[i].Held(), r.value(t, name))
			}
		}
		if !theirs.Held() || r.value(t, "theirs") == "" {
			t.Error("it released the lease of another locker")
		}
		sent := r.link.scripts.Load()
		must(t, r.locker.ReleaseAll(t.Context()))
		if r.link.scripts.Load() != sent {
			t.Error("ended leases were released again")
		}
	})
}

// ReleaseAll may meet a lease in the moment in which it is made.
func TestReleaseAllWhileLeasesAreMade(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const leases = 300
		made := make(chan struct{})
		go func() {
			defer close(made)
			for i := range leases {
				if _, err := r.locker.TryAcquire(t.Context(), strconv.Itoa(i), time.Minute); err != nil {
					t.Error(err)
				}
			}
		}()
		for all := false; !all; {
			select {
			case <-made:
				all = true
			default:
			}
			must(t, r.locker.ReleaseAll(t.Context()))
		}
		for i := range leases {
			if got := r.value(t, strconv.Itoa(i)); got != "" {
				t.Fatalf("lock %d is still held: %q", i, got)
			}
		}
	})
}

func TestKeepAliveHoldsFarPastTheTTL(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const ttl = 600 * time.Millisecond
		lease := r.take(t, "a", ttl)
		lease.KeepAlive()
		lease.KeepAlive() // no second renewer
		other, _ := r.newLocker(t, r.cfg)
		ctx, cancel := context.WithTimeout(t.Context(), 5*ttl/2)
		defer cancel()
		_, err := other.Acquire(ctx, "a", ttl)
		wants(t, err, lock.ErrHeld, context.DeadlineExceeded)
		if !lease.Held() {
			t.Fatalf("the lease ended: %v", lease.Err())
		}
		if sent := r.link.scripts.Load(); sent > 20 {
			t.Errorf("%d scripts in 2.5 TTLs, want about 3 a TTL", sent)
		}
		must(t, lease.Release(t.Context()))
		sent := r.link.scripts.Load()
		must(t, release(other.Acquire(soon(t), "a", 2*ttl)))
		if r.link.scripts.Load() > sent+1 {
			t.Error("it was renewed after its release")
		}
		lease.KeepAlive() // of an ended lease: nothing to do
	})
}

func TestLeaseInConcurrentUse(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lease := r.take(t, "a", time.Minute)
		var users sync.WaitGroup
		for i := range 8 {
			users.Go(func() {
				lease.KeepAlive()
				if err := lease.Extend(t.Context(), time.Duration(1+i)*time.Minute); err != nil {
					t.Error(err)
				}
				if !lease.Held() || lease.Until().Before(time.Now()) {
					t.Error("it ended")
				}
			})
		}
		users.Wait()
		if left, want := r.left(t, "a"), time.Until(lease.Until()); left < want {
			t.Errorf("the key lives for %v, the lease for %v", left, want)
		}
		for range 4 {
			users.Go(func() {
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		users.Wait()
		wants(t, lease.Err(), lock.ErrReleased)
	})
}
