package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// A turn is what became of one who waited.
type turn struct {
	place int
	lease *lock.Lease
	err   error
}

// stand has a locker wait for a lock, and returns when it is in line with so
// many. What becomes of it goes to turns.
func (r *rig) stand(ctx context.Context, t *testing.T, locker *lock.Locker, name string, place int, turns chan<- turn) {
	t.Helper()
	go func() {
		lease, err := locker.Acquire(ctx, name, time.Minute)
		turns <- turn{place, lease, err}
	}()
	r.inLine(t, name, place)
}

func (r *rig) inLine(t *testing.T, name string, most int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait", most), func() bool {
		info, err := r.locker.Inspect(t.Context(), name)
		must(t, err)
		return info.Waiters == most
	})
}

// next is whose turn it is.
func next(t *testing.T, turns <-chan turn, place int) *lock.Lease {
	t.Helper()
	got := <-turns
	must(t, got.err)
	if got.place != place {
		t.Fatalf("it is the turn of the one who came as number %d, want number %d", got.place, place)
	}
	return got.lease
}

func TestWaitersHaveTheirTurnInTheOrderOfTheirComing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first := r.take(t, "a", time.Minute)
		var lockers [3]*lock.Locker
		for i := range lockers {
			lockers[i], _ = r.newLocker(t, r.cfg)
		}
		const waiters = 12
		turns := make(chan turn, waiters)
		for i := range waiters {
			r.stand(soon(t), t, lockers[i%3], "a", i+1, turns)
		}
		must(t, first.Release(t.Context()))
		fence := first.Fence()
		for i := range waiters {
			lease := next(t, turns, i+1)
			if lease.Fence() <= fence {
				t.Fatalf("fence %d follows %d", lease.Fence(), fence)
			}
			fence = lease.Fence()
			_, err := r.locker.TryAcquire(t.Context(), "a", time.Minute)
			wants(t, err, lock.ErrHeld)
			must(t, lease.Release(t.Context()))
		}
		must(t, release(r.locker.TryAcquire(t.Context(), "a", time.Minute)))
		r.inLine(t, "a", 0)
	})
}

// Nobody tells a waiter that a key has expired or was deleted: whoever comes by
// then has to pass the lock on.
func TestNewcomersDoNotOvertakeAWaiter(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for story, free := range map[string]func(name string){
			"deleted": func(name string) { must(t, r.Del(t.Context(), r.key(name)).Err()) },
			"expired": func(name string) { must(t, r.PExpire(t.Context(), r.key(name), 20*time.Millisecond).Err()) },
			"forced": func(name string) {
				freed, err := r.locker.ForceRelease(t.Context(), name)
				must(t, err)
				if freed != 1 {
					t.Errorf("%d locks were freed, want 1", freed)
				}
			},
		} {
			r.take(t, story, time.Hour)
			waiting, _ := r.newLocker(t, r.cfg)
			turns := make(chan turn, 1)
			r.stand(soon(t), t, waiting, story, 1, turns)
			free(story)
			var lease *lock.Lease
			for lease == nil {
				_, err := r.locker.TryAcquire(t.Context(), story, time.Minute)
				wants(t, err, lock.ErrHeld)
				select {
				case got := <-turns:
					must(t, got.err)
					lease = got.lease
				default:
				}
			}
			must(t, lease.Release(t.Context()))
		}
	})
}

// More have died in line than one script drops. They do not let a newcomer
// overtake who lives.
func TestManyDeadDoNotLetANewcomerOvertake(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.take(t, "a", time.Hour)
		pipe := r.Pipeline()
		for i := range 1500 {
			pipe.ZAdd(t.Context(), r.cfg.Prefix+"{line}:a", redis.Z{Score: float64(i), Member: fmt.Sprintf("dead#%d/0", i)})
		}
		_, err := pipe.Exec(t.Context())
		must(t, err)
		waiting, _ := r.newLocker(t, r.cfg)
		turns := make(chan turn, 1)
		go func() {
			lease, err := waiting.Acquire(soon(t), "a", time.Minute)
			turns <- turn{1, lease, err}
		}()
		r.inLine(t, "a", 1501)
		must(t, r.Del(t.Context(), r.key("a")).Err())
		_, err = r.locker.TryAcquire(t.Context(), "a", time.Minute)
		wants(t, err, lock.ErrHeld)
		must(t, next(t, turns, 1).Release(t.Context()))
	})
}

// The grant to a waiter that is not there any more goes on to the next.
func TestCancelledWaiterPassesItsGrantOnAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		first := r.take(t, "a", time.Minute)
		deaf, err := lock.NewDeaf(r.client(t, new(link)), r.cfg)
		must(t, err)
		hears, _ := r.newLocker(t, r.cfg)
		turns := make(chan turn, 2)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.stand(ctx, t, deaf, "a", 1, turns)
		r.stand(soon(t), t, hears, "a", 2, turns)
		must(t, first.Release(t.Context()))
		granted := r.value(t, "a")
		must(t, r.PExpire(t.Context(), r.key("a"), time.Hour).Err()) // it does not pass on by expiry
		cancel()
		gaveUp(t, (<-turns).err)
		lease := next(t, turns, 2)
		if granted == "" || r.value(t, "a") == granted {
			t.Fatalf("granted to %q, then %q", granted, r.value(t, "a"))
		}
		must(t, lease.Release(t.Context()))
	})
}

// Whoever was dropped from the line, or whose line is gone, comes to have the
// lock none the less.
func TestEvictedWaiterHasItsTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, openRedis(t)) // a server of its own, for FLUSHALL
	line, alive := r.cfg.Prefix+"{line}:a", r.cfg.Prefix+"{alive}:a"
	for story, evict := range map[string]func() error{
		"FLUSHALL": func() error { return r.FlushAll(t.Context()).Err() },
		"line":     func() error { return r.Del(t.Context(), line, r.key("a")).Err() },
		"alive":    func() error { return r.Del(t.Context(), alive, r.key("a")).Err() },
	} {
		first := r.take(t, "a", time.Minute)
		const waiters = 2
		turns := make(chan turn, waiters)
		for i := range waiters {
			locker, _ := r.newLocker(t, r.cfg)
			r.stand(soon(t), t, locker, "a", i+1, turns)
		}
		must(t, evict())
		if story != "FLUSHALL" { // after which nobody tells that the lock is free
			_ = first.Release(t.Context())
		}
		for range waiters {
			got := <-turns
			if got.err != nil {
				t.Fatalf("%s: %v", story, got.err)
			}
			must(t, got.lease.Release(t.Context()))
		}
	}
}

// Without an order there is no line; the one who releases tells that the lock is
// free, and every process comes to have it.
func TestUnfairWaitersAreTold(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.cfg.Unfair = true
		var lockers [3]*lock.Locker
		for i := range lockers {
			lockers[i], _ = r.newLocker(t, r.cfg)
		}
		ctx, cancel := context.WithCancel(soon(t))
		defer cancel()
		served := make(chan int)
		ended := make(chan error)
		for i, locker := range lockers {
			for range 3 {
				go func() {
					for {
						lease, err := locker.Acquire(ctx, "a", time.Minute)
						if err != nil {
							ended <- err
							return
						}
						select {
						case served <- i:
						case <-ctx.Done():
						}
						_ = lease.Release(context.WithoutCancel(ctx))
					}
				}()
			}
		}
		seen := make(map[int]int)
		for len(seen) < 3 || seen[0]+seen[1]+seen[2] < 50 {
			select {
			case i := <-served:
				seen[i]++
			case err := <-ended:
				t.Fatalf("%v after %v", err, seen)
			}
		}
		if n, err := r.Exists(t.Context(), r.cfg.Prefix+"{line}:a").Result(); err != nil || n != 0 {
			t.Errorf("there is a line: %v", err)
		}
		cancel()
		for range 9 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
	})
}
