package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

func TestTryAcquireTakesAFreeLockAndRefusesAHeldOne(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		before := time.Now()
		r.cfg.Owner = "the first"
		r.locker, r.link = r.newLocker(t, r.cfg)
		lease := r.take(t, "a", 30*time.Second)
		after := time.Now()
		if lease.Name() != "a" || lease.Token() == "" || lease.Fence() == 0 || !lease.Held() || lease.Err() != nil {
			t.Fatalf("the lease is not one of %q: %+v", "a", lease)
		}
		validity := 30*time.Second - 300*time.Millisecond - 2*time.Millisecond
		if u := lease.Until(); u.Before(before.Add(validity)) || u.After(after.Add(validity)) {
			t.Fatalf("Until is %v after the request, want %v", u.Sub(before), validity)
		}
		if got, want := r.value(t, "a"), fmt.Sprintf("%d:%s", lease.Fence(), lease.Token()); got != want {
			t.Fatalf("stored %q, want %q", got, want)
		}
		if left := r.left(t, "a"); left <= 0 || left > 30*time.Second {
			t.Fatalf("the key lives for %v", left)
		}

		other, _ := r.newLocker(t, r.cfg)
		_, err := other.TryAcquire(t.Context(), "a", time.Second)
		wants(t, err, lock.ErrHeld)
		held, ok := errors.AsType[*lock.HeldError](err)
		if !ok || held.Name != "a" || held.Owner != "the first" || held.RetryAfter <= 0 || held.RetryAfter > 30*time.Second {
			t.Fatalf("got %#v, want a HeldError with at most the TTL of the lock", err)
		}
		if !strings.Contains(err.Error(), `"a" is held by "the first" for`) {
			t.Fatalf("unclear error: %v", err)
		}

		must(t, lease.Release(t.Context()))
		must(t, release(other.TryAcquire(t.Context(), "a", time.Second)))
	})
}

// release gives back what was acquired.
func release(lease *lock.Lease, err error) error {
	if err != nil {
		return err
	}
	return lease.Release(context.Background())
}

func TestNamesAreLockedApart(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		longest := strings.Repeat("é", lock.MaxName/2)
		for _, name := range []string{"a", "b", "a:fence", "fence", "a b\"'%s", longest} {
			r.take(t, name, time.Minute)
		}
		alone, _ := r.newLocker(t, lock.Config{Prefix: t.Name() + strconv.FormatInt(rigs.Add(1), 10)})
		for _, name := range []string{"a", "b", "a:fence", "fence"} {
			must(t, release(alone.TryAcquire(t.Context(), name, time.Minute)))
		}
	})
}

func TestAcquireWaitsForTheRelease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lease := r.take(t, "a", time.Minute)
		r.cfg.PollMax = 10 * time.Millisecond
		other, link := r.newLocker(t, r.cfg)
		done := make(chan error)
		go func() { done <- release(other.Acquire(soon(t), "a", time.Minute)) }()
		eventually(t, "a second look at the lock", func() bool { return link.scripts.Load() > 2 })
		select {
		case err := <-done:
			t.Fatalf("acquired a held lock: %v", err)
		default:
		}
		must(t, lease.Release(t.Context()))
		must(t, <-done)
	})
}

func TestAcquireWaitsForTheExpiry(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		dead := r.take(t, "a", 200*time.Millisecond)
		other, _ := r.newLocker(t, r.cfg)
		lease, err := other.Acquire(soon(t), "a", time.Minute)
		must(t, err)
		if dead.Held() || lease.Fence() <= dead.Fence() {
			t.Fatalf("the dead lease is held: %v; fences %d, %d", dead.Held(), dead.Fence(), lease.Fence())
		}
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lease := r.take(t, "a", time.Minute)
		stored := r.value(t, "a")
		other, link := r.newLocker(t, r.cfg)

		ctx, cancel := context.WithCancel(t.Context())
		link.afterScripts(3, cancel)
		_, err := other.Acquire(ctx, "a", time.Minute)
		wants(t, err, lock.ErrHeld, context.Canceled)

		if r.value(t, "a") != stored || !lease.Held() {
			t.Fatal("waiting changed the lock")
		}
	})
}

// The answer 'held' and the end of the context can come together, and whichever
// is seen first, the error says that the context has ended.
func TestAcquireEndsWithItsContextDuringAReply(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.take(t, "a", time.Minute)
		for range 30 {
			ctx, cancel := context.WithCancel(t.Context())
			client := r.client(t, new(link))
			client.AddHook(after{act: func() { go cancel() }})
			locker, err := lock.New(client, r.cfg)
			must(t, err)
			_, err = locker.Acquire(ctx, "a", time.Minute)
			gaveUp(t, err)
		}
	})
}

// after is a hook that acts when a reply is there.
type after struct {
	hooks
	act func()
}

func (h after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.act()
		return err
	}
}

func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.locker.TryAcquire(ctx, "a", time.Minute)
		wants(t, err, context.Canceled)
		_, err = r.locker.Acquire(ctx, "a", time.Minute)
		wants(t, err, context.Canceled)
		if errors.Is(err, lock.ErrUnknownOutcome) || r.link.scripts.Load() != 0 {
			t.Fatalf("%d scripts were sent: %v", r.link.scripts.Load(), err)
		}
	})
}

func TestFencesRise(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, kind.start(t)) // a server of its own, for FLUSHALL
			t.Run("shared counter", func(t *testing.T) { fencesRise(t, r, r.locker, r.key("a"), r.cfg.Prefix+"{fence}") })
			alone, _ := r.newLocker(t, lock.Config{Prefix: "alone:"})
			t.Run("own counter", func(t *testing.T) { fencesRise(t, r, alone, "alone:{a}", "alone:{a}:fence") })
		})
	}
}

func fencesRise(t *testing.T, r *rig, locker *lock.Locker, key, counter string) {
	lease, err := locker.TryAcquire(t.Context(), "a", time.Minute)
	must(t, err)
	for _, event := range []struct {
		name string
		do   func() error
	}{
		{"a release", func() error { return lease.Release(t.Context()) }},
		{"DEL of the lock", func() error { return r.Del(t.Context(), key).Err() }},
		{"loss of the counter", func() error { return r.Del(t.Context(), counter, key).Err() }},
		{"FLUSHALL", func() error { return r.FlushAll(t.Context()).Err() }},
		{"the clock went back", func() error { // so that the counter is ahead of it
			return errors.Join(r.Del(t.Context(), key).Err(), r.IncrBy(t.Context(), counter, 1e12).Err())
		}},
		{"a release ahead of the clock", func() error { return lease.Release(t.Context()) }},
	} {
		must(t, event.do())
		counted, err := r.Get(t.Context(), counter).Uint64()
		if !errors.Is(err, redis.Nil) {
			must(t, err)
		}
		next, err := locker.TryAcquire(t.Context(), "a", time.Minute)
		must(t, err)
		if last := max(lease.Fence(), counted); next.Fence() <= last {
			t.Fatalf("after %s: fence %d follows %d", event.name, next.Fence(), last)
		}
		lease = next
	}
}

// The fence of a name without a tag must not stay for ever: there can be as many
// names as orders.
func TestFenceKeysExpire(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		prefix := fmt.Sprintf("%s%d:", t.Name(), rigs.Add(1))
		locker, _ := r.newLocker(t, lock.Config{Prefix: prefix})
		for _, ttl := range []time.Duration{time.Minute, 1<<63 - 1} {
			must(t, release(locker.TryAcquire(t.Context(), "a", ttl)))
			left, err := r.PTTL(t.Context(), prefix+"{a}:fence").Result()
			must(t, err)
			if left < 24*time.Hour-time.Minute || left > 24*time.Hour {
				t.Fatalf("TTL %v: the fence is kept for %v, want a day: the clock has passed it by then", ttl, left)
			}
		}
		r.take(t, "a", time.Minute)
		left, err := r.PTTL(t.Context(), r.cfg.Prefix+"{fence}").Result()
		must(t, err)
		if left != -1 {
			t.Fatalf("the shared fence is kept for %v, want for ever", left)
		}
	})
}

func TestKeyWithoutTTLIsAdopted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		slow, quick := r.cfg, r.cfg
		slow.AdoptTTL, quick.AdoptTTL = time.Minute, 50*time.Millisecond
		patient, _ := r.newLocker(t, slow)
		hasty, _ := r.newLocker(t, quick)
		for i, value := range []string{"1", "", "host-7/pid-12", "12:", "abc:def", "17:not-ours"} {
			name := strconv.Itoa(i)
			r.put(t, name, value, 0)
			for _, locker := range []*lock.Locker{patient, hasty} { // the second look must not adopt it anew
				_, err := locker.TryAcquire(t.Context(), name, time.Hour)
				held, ok := errors.AsType[*lock.HeldError](err)
				if !ok || held.RetryAfter > time.Minute || held.RetryAfter < 30*time.Second {
					t.Fatalf("%q: got %v, want it held for AdoptTTL: its maker may be alive", value, err)
				}
				if got, left := r.value(t, name), r.left(t, name); got != value || left > time.Minute || left < 30*time.Second {
					t.Fatalf("%q: stored %q for %v", value, got, left)
				}
			}
		}
		r.put(t, "a", "1", 0)
		must(t, release(hasty.Acquire(soon(t), "a", time.Minute)))
	})
}

func TestPlainSetnxHolderIsRespected(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.put(t, "a", "their-uuid", 20*time.Second)
		_, err := r.locker.TryAcquire(t.Context(), "a", time.Minute)
		held, ok := errors.AsType[*lock.HeldError](err)
		if !ok || held.RetryAfter > 20*time.Second || held.RetryAfter < time.Second {
			t.Fatalf("got %v, want it held for what is left of 20 s", err)
		}
		if got, left := r.value(t, "a"), r.left(t, "a"); got != "their-uuid" || left > 20*time.Second {
			t.Fatalf("stored %q for %v", got, left)
		}
	})
}

// No clock of a client goes to Redis: no argument is a moment in any unit.
func TestOnlyRelativeTimesAreSent(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		seen := make(chan []any, 100)
		client := r.client(t, new(link))
		client.AddHook(spy{seen: seen})
		locker, err := lock.New(client, r.cfg)
		must(t, err)
		lease, err := locker.TryAcquire(t.Context(), "a", 24*time.Hour)
		must(t, err)
		must(t, lease.Extend(t.Context(), 48*time.Hour))
		must(t, lease.Release(t.Context()))
		close(seen)
		scripts := 0
		for args := range seen {
			scripts++
			for _, arg := range args[2:] {
				if n, err := strconv.ParseInt(fmt.Sprint(arg), 10, 64); err == nil && n >= 1e9 {
					t.Errorf("%v was sent: it may be a moment", arg)
				}
			}
		}
		if scripts < 3 {
			t.Fatalf("saw %d scripts", scripts)
		}
	})
}

// spy is a hook that sees the arguments of scripts.
type spy struct {
	hooks
	seen chan<- []any
}

func (h spy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.seen <- cmd.Args()
		}
		return next(ctx, cmd)
	}
}
