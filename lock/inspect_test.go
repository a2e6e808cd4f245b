package lock_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock"
)

// waiters is how many stand in line for a name.
func (r *rig) waiters(t *testing.T, name string) int {
	t.Helper()
	info, err := r.locker.Inspect(t.Context(), name)
	must(t, err)
	return info.Waiters
}

func TestInspectShowsALockAndChangesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		info, err := r.locker.Inspect(t.Context(), "a")
		must(t, err)
		if info != (lock.Info{Name: "a"}) {
			t.Fatalf("a free lock: %+v", info)
		}

		lease := r.take(t, "a", time.Minute)
		info, err = r.locker.Inspect(t.Context(), "a")
		must(t, err)
		if host, _ := os.Hostname(); info.Owner != fmt.Sprintf("%s:%d", host, os.Getpid()) {
			t.Errorf("held by %q, want this host and process", info.Owner)
		}
		if !info.Held || info.NoExpiry || info.Token != lease.Token() || info.Fence != lease.Fence() ||
			info.TTL <= 50*time.Second || info.TTL > time.Minute || info.Waiters != 0 {
			t.Errorf("a held lock: %+v", info)
		}

		for _, foreign := range []string{"their-uuid", "1:a/b", "", "::", "12:"} {
			r.put(t, "b", foreign, 0)
			info, err = r.locker.Inspect(t.Context(), "b")
			must(t, err)
			if !info.Held || !info.NoExpiry || info.TTL != 0 {
				t.Errorf("%q without a TTL: %+v", foreign, info)
			}
			if r.left(t, "b") != -1 || r.value(t, "b") != foreign {
				t.Errorf("%q: looking changed it", foreign)
			}
		}
		_, err = r.locker.Inspect(t.Context(), "{a}")
		wants(t, err, lock.ErrInvalid)
	})
}

func TestForceReleaseFreesWhoeverHolds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lease := r.take(t, "a", time.Minute)
		r.put(t, "b", "their-uuid", 0)
		other, _ := r.newLocker(t, r.cfg)
		waited := make(chan *lock.Lease)
		go func() {
			next, err := other.Acquire(soon(t), "a", time.Minute)
			if err != nil {
				t.Error(err)
			}
			waited <- next
		}()
		eventually(t, "somebody waits", func() bool { return r.waiters(t, "a") == 1 })

		freed, err := r.locker.ForceRelease(t.Context(), "a", "b", "free")
		must(t, err)
		if freed != 2 {
			t.Errorf("freed %d locks, want 2", freed)
		}
		if next := <-waited; next.Fence() <= lease.Fence() {
			t.Errorf("fence %d follows %d", next.Fence(), lease.Fence())
		}
		wants(t, lease.Extend(t.Context(), time.Minute), lock.ErrLost)
		must(t, release(other.TryAcquire(t.Context(), "b", time.Minute)))
		_, err = r.locker.ForceRelease(t.Context(), "a", "")
		wants(t, err, lock.ErrInvalid)
		if r.value(t, "a") == "" {
			t.Error("a bad name did not keep the others from being freed")
		}
	})
}

func TestResumeGoesOnInAnotherProcess(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first := r.take(t, "a", time.Minute)
		first.KeepAlive()
		token, err := first.HandOver()
		must(t, err)
		finished(t, first.Done())
		wants(t, first.Err(), lock.ErrHandedOver)
		wants(t, first.Extend(t.Context(), time.Minute), lock.ErrHandedOver)

		other, _ := r.newLocker(t, r.cfg)
		second, err := other.Resume(t.Context(), "a", token, time.Hour)
		must(t, err)
		if second.Fence() != first.Fence() || second.Token() != token || !second.Held() {
			t.Errorf("resumed with fence %d, want %d", second.Fence(), first.Fence())
		}
		if left := time.Until(second.Until()); left < 50*time.Minute || r.left(t, "a") < left {
			t.Errorf("resumed for %v, the key for %v", left, r.left(t, "a"))
		}

		wants(t, first.Release(t.Context()), lock.ErrHandedOver)
		must(t, r.locker.ReleaseAll(t.Context()))
		_, err = first.HandOver()
		must(t, err) // again: the same token
		must(t, second.Extend(t.Context(), time.Minute))
		must(t, second.Release(t.Context()))
		_, err = second.HandOver()
		wants(t, err, lock.ErrReleased)
	})
}

func TestResumeNeedsTheTokenThatHoldsTheLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first := r.take(t, "a", time.Minute)
		must(t, first.Release(t.Context()))
		other, _ := r.newLocker(t, r.cfg)
		_, err := other.Resume(t.Context(), "a", first.Token(), time.Minute)
		wants(t, err, lock.ErrExpired)
		r.take(t, "a", time.Minute)
		for _, token := range []string{first.Token(), first.Token()[:len(first.Token())-1], "x"} {
			stored := r.value(t, "a")
			_, err = other.Resume(t.Context(), "a", token, time.Hour)
			wants(t, err, lock.ErrLost)
			if r.value(t, "a") != stored || r.left(t, "a") > time.Minute {
				t.Errorf("a foreign token changed the lock to %q", r.value(t, "a"))
			}
		}
		for _, token := range []string{"", "a\n", "\xff", strings.Repeat("x", 513)} {
			_, err = other.Resume(t.Context(), "a", token, time.Minute)
			wants(t, err, lock.ErrInvalid)
		}
	})
}

// The answer to a Resume took longer than its TTL. The token is not its own to
// give up: the next Resume must find the lock as it was.
func TestLateResumeLeavesTheLockAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		token, err := r.take(t, "a", time.Minute).HandOver()
		must(t, err)
		for range 20 {
			r.link.delay(30 * time.Millisecond)
			_, err = r.locker.Resume(t.Context(), "a", token, 15*time.Millisecond)
			wants(t, err, lock.ErrUnknownOutcome)
		}
		lease, err := r.locker.Resume(t.Context(), "a", token, time.Minute)
		must(t, err)
		other, _ := r.newLocker(t, r.cfg)
		_, err = other.TryAcquire(t.Context(), "a", time.Minute)
		wants(t, err, lock.ErrHeld)
		must(t, lease.Extend(t.Context(), time.Minute))
	})
}

// An extension that was on its way at the handover is answered after it. It must
// not take from the next process what it has resumed.
func TestLateExtensionLeavesWhatWasHandedOverAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		lease := r.take(t, "a", 400*time.Millisecond)
		extended := make(chan error)
		executed, answered := make(chan struct{}), make(chan struct{})
		r.link.onReply(func() error {
			close(executed)
			<-answered
			return nil
		})
		go func() { extended <- lease.Extend(t.Context(), time.Minute) }()
		<-executed
		token, err := lease.HandOver()
		must(t, err)
		other, _ := r.newLocker(t, r.cfg)
		resumed, err := other.Resume(t.Context(), "a", token, time.Minute)
		must(t, err)
		close(answered)
		wants(t, <-extended, lock.ErrHandedOver)
		must(t, r.locker.ReleaseAll(t.Context())) // whatever it sends comes behind
		must(t, resumed.Extend(t.Context(), time.Minute))
	})
}

func TestObserverIsToldWhatHappens(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var mu sync.Mutex
		var events []lock.Event
		r.cfg.Owner = "shop"
		r.cfg.Observer = func(e lock.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}
		locker, _ := r.newLocker(t, r.cfg)
		ctx := t.Context()
		lease, err := locker.TryAcquire(ctx, "a", time.Minute)
		must(t, err)
		must(t, lease.Extend(ctx, time.Minute))
		_, err = locker.TryAcquire(ctx, "a", time.Minute)
		wants(t, err, lock.ErrHeld)
		must(t, lease.Release(ctx))
		robbed, err := locker.TryAcquire(ctx, "a", time.Minute)
		must(t, err)
		r.put(t, "a", "thief", 0)
		_, err = locker.TryAcquire(ctx, "a", time.Minute)
		wants(t, err, lock.ErrHeld)
		wants(t, robbed.Extend(ctx, time.Minute), lock.ErrLost)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, err = locker.TryAcquire(gone, "a", time.Minute)
		wants(t, err, context.Canceled)

		kinds := make([]lock.EventKind, len(events))
		for i, e := range events {
			kinds[i] = e.Kind
			if e.Name != "a" || e.Took < 0 {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		want := []lock.EventKind{
			lock.Acquired, lock.Renewed, lock.Refused, lock.Released,
			lock.Acquired, lock.Adopted, lock.Refused, lock.Lost, lock.Renewed, lock.Failed,
		}
		if !slices.Equal(kinds, want) {
			t.Fatalf("told %v, want %v", kinds, want)
		}
		for i, owner := range []string{"shop", "shop", "shop", "shop", "shop", "thief", "thief"} {
			if events[i].Owner != owner {
				t.Errorf("%s of %q, want %q", events[i].Kind, events[i].Owner, owner)
			}
		}
		wants(t, events[7].Err, lock.ErrLost)
	})
}
