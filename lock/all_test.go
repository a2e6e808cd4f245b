package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock"
)

func TestAcquireAllTakesEveryName(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		leases, err := r.locker.AcquireAll(t.Context(), time.Minute, "sku:7", "order:42", "sku:7")
		must(t, err)
		if len(leases) != 2 || leases[0].Name() != "order:42" || leases[1].Name() != "sku:7" {
			t.Fatalf("got %d leases, want the two names in order", len(leases))
		}
		if leases.Lease("sku:7") != leases[1] || leases.Lease("sku:8") != nil {
			t.Error("a lease is not found by its name")
		}
		for _, lease := range leases {
			if left := time.Until(lease.Until()); left < 50*time.Second {
				t.Errorf("%s lasts for %v, want a minute: it was waiting for the others", lease.Name(), left)
			}
		}
		must(t, leases.Extend(t.Context(), time.Hour))
		if r.left(t, "order:42") < 50*time.Minute || r.left(t, "sku:7") < 50*time.Minute {
			t.Error("not all were extended")
		}
		must(t, leases.Release(t.Context()))
		if r.value(t, "order:42")+r.value(t, "sku:7") != "" {
			t.Error("not all were released")
		}
	})
}

func TestAcquireAllTakesNoneUnlessAll(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		held := r.take(t, "b", time.Minute)
		other, _ := r.newLocker(t, r.cfg)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		go func() {
			_, err := other.AcquireAll(ctx, time.Minute, "c", "b", "a")
			got <- err
		}()
		eventually(t, "it holds the first and waits for the second", func() bool {
			return r.value(t, "a") != "" && r.waiters(t, "b") == 1
		})
		if r.value(t, "c") != "" {
			t.Error("it took the third before the second")
		}
		cancel()
		gaveUp(t, <-got) // Redis has it in line, and its answer may be on the way
		eventually(t, "it leaves nothing behind", func() bool {
			return r.value(t, "a") == "" && r.waiters(t, "b") == 0
		})
		must(t, held.Extend(t.Context(), time.Minute))
	})
}

// The first name is held while the second is waited for, for longer than its TTL.
func TestAcquireAllKeepsWhatItHasWhileItWaits(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const ttl = 400 * time.Millisecond
		held := r.take(t, "b", 3*ttl)
		other, _ := r.newLocker(t, r.cfg)
		leases, err := other.AcquireAll(soon(t), ttl, "a", "b")
		must(t, err)
		if held.Held() {
			t.Fatal("the story is not told: the second name was free")
		}
		for _, lease := range leases {
			if !lease.Held() || time.Until(lease.Until()) > ttl {
				t.Errorf("%s lasts until %v from now: %v", lease.Name(), time.Until(lease.Until()), lease.Err())
			}
		}
		for _, lease := range leases {
			finished(t, lease.Done()) // it is not kept alive any longer
			wants(t, lease.Err(), lock.ErrExpired)
		}
	})
}

// Two who want the same names in different orders do not wait for each other.
func TestAcquireAllDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		var inside, runs [3]int // by name; guarded by the names' locks
		var callers sync.WaitGroup
		ctx := soon(t)
		for i := range 6 {
			locker, _ := r.newLocker(t, r.cfg)
			callers.Go(func() {
				for round := range 10 {
					a, b := (i+round)%3, (i+round+1)%3
					err := locker.DoAll(ctx, 10*time.Second, func(context.Context, lock.Leases) error {
						for _, name := range []int{a, b} {
							if inside[name]++; inside[name] != 1 {
								t.Errorf("%d holders of %d", inside[name], name)
							}
							runs[name]++
							inside[name]--
						}
						return nil
					}, fmt.Sprint(a), fmt.Sprint(b))
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		if runs != [3]int{40, 40, 40} {
			t.Errorf("ran %v times, want 40 of each name", runs)
		}
	})
}

func TestDoAllEndsWhenOneLeaseIsLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		mine := errors.New("f's own")
		err := r.locker.DoAll(t.Context(), 300*time.Millisecond, func(ctx context.Context, leases lock.Leases) error {
			r.put(t, "b", "thief", time.Minute)
			finished(t, ctx.Done())
			wants(t, context.Cause(ctx), lock.ErrLost)
			if !leases[0].Held() {
				t.Errorf("the other was lost too: %v", leases[0].Err())
			}
			return mine
		}, "a", "b")
		wants(t, err, mine, lock.ErrLost)
		if r.value(t, "a") != "" || r.value(t, "b") != "thief" {
			t.Errorf("stored %q and %q", r.value(t, "a"), r.value(t, "b"))
		}
	})
}

func TestAcquireAllRefusesBadNames(t *testing.T) {
	t.Parallel()
	locker, err := lock.New(unreachable(t), lock.Config{})
	must(t, err)
	many := make([]string, lock.MaxNames+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, names := range [][]string{nil, {"a", ""}, {"a", "{b}"}, many} {
		_, err := locker.AcquireAll(t.Context(), time.Minute, names...)
		wants(t, err, lock.ErrInvalid)
		wants(t, locker.DoAll(t.Context(), time.Minute, nil, names...), lock.ErrInvalid)
	}
	_, err = locker.AcquireAll(t.Context(), 0, "a")
	wants(t, err, lock.ErrInvalid)
}
