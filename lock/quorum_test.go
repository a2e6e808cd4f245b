package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

func TestQuorumLocks(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	other, _ := f.newLocker(t)
	lease := f.take(t, "a", time.Minute)
	f.whole(t, lease)

	_, err := other.TryAcquire(soon(t), "a", time.Minute)
	wants(t, err, lock.ErrHeld)
	var held *lock.HeldError
	if !errors.As(err, &held) || held.Name != "a" || held.Owner == "" || held.RetryAfter < 50*time.Second {
		t.Errorf("held: %+v", held)
	}
	info, err := other.Inspect(soon(t), "a")
	must(t, err)
	if !info.Held || info.Token != lease.Token() || info.Fence != lease.Fence() || info.TTL < 50*time.Second {
		t.Errorf("inspected: %+v", info)
	}
	must(t, lease.Extend(soon(t), time.Hour))
	if left := time.Until(lease.Until()); left < 50*time.Minute {
		t.Errorf("extended to %v", left)
	}

	resumed, err := other.Resume(soon(t), "a", lease.Token(), time.Hour)
	must(t, err)
	if resumed.Fence() != lease.Fence() {
		t.Errorf("resumed with fence %d, not %d", resumed.Fence(), lease.Fence())
	}
	must(t, resumed.Release(soon(t)))
	f.free(t, "a")
	wants(t, lease.Extend(soon(t), time.Minute), lock.ErrExpired)
	_, err = other.Resume(soon(t), "a", lease.Token(), time.Hour)
	wants(t, err, lock.ErrExpired)

	next, err := other.TryAcquire(soon(t), "a", time.Minute)
	must(t, err)
	f.take(t, "b", time.Minute).KeepAlive()
	must(t, f.locker.ReleaseAll(soon(t)))
	f.free(t, "b")
	n, err := f.locker.ForceRelease(soon(t), "a", "b")
	if must(t, err); n != 1 {
		t.Errorf("%d were held", n)
	}
	wants(t, next.Extend(soon(t), time.Minute), lock.ErrExpired)
	info, err = other.Inspect(soon(t), "a")
	if must(t, err); info.Held {
		t.Errorf("inspected after all: %+v", info)
	}
	f.free(t, "a")
}

func TestQuorumKeepsAliveWhatDoDoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const ttl = 2 * time.Second
	must(t, f.locker.Do(soon(t), "a", ttl, func(ctx context.Context, lease *lock.Lease) error {
		first := lease.Until()
		eventually(t, "it is renewed again and again", func() bool { return lease.Until().Sub(first) > ttl })
		return ctx.Err()
	}))
	f.free(t, "a")
}

// The waiters of several processes split the votes of the nodes again and again.
// None waits for ever, and no two hold the lock at once.
func TestQuorumWaitersGetItInTheEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var (
		all    sync.WaitGroup
		holder sync.Mutex
		last   uint64 // guarded by holder
	)
	for range 3 {
		locker, _ := f.newLocker(t)
		for range 2 {
			all.Go(func() {
				for range 3 {
					err := locker.Do(soon(t), "a", time.Minute, func(_ context.Context, lease *lock.Lease) error {
						if !holder.TryLock() {
							return errors.New("two hold it")
						}
						defer holder.Unlock()
						if lease.Fence() <= last {
							return fmt.Errorf("fence %d follows %d", lease.Fence(), last)
						}
						last = lease.Fence()
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	f.free(t, "a")
}

func TestQuorumWaiterGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	lease := f.take(t, "a", time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	other, _ := f.newLocker(t)
	_, err := other.Acquire(ctx, "a", time.Minute)
	wants(t, err, lock.ErrHeld, context.DeadlineExceeded)
	f.whole(t, lease)
	must(t, lease.Release(soon(t)))
}

// Each acquisition finds another majority up. Any two have a node in common,
// whatever the counters and clocks of the others.
func TestQuorumFencesRiseOverAnyMajorities(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.warm(t)
	counter := f.cfg.Prefix + "{fence}"
	var last uint64
	for round, down := range [][]int{{3, 4}, {0, 1}, {2, 3}, {}, {0, 2}, {1, 4}, {3, 4}, {2, 0}, {}, {1, 3}} {
		for _, i := range down {
			f.nodes[i].link.refuse.Store(true)
			f.nodes[i].link.deaf.Store(true)
		}
		if round%3 == 1 { // one node that is up is far ahead
			ahead := f.nodes[(down[0]+1)%5]
			if (down[0]+1)%5 == down[1] {
				ahead = f.nodes[(down[1]+1)%5]
			}
			must(t, ahead.IncrBy(t.Context(), counter, 1e12).Err())
		}
		lease := f.take(t, "a", 10*time.Second)
		if lease.Fence() <= last {
			t.Errorf("round %d, without %v: fence %d follows %d", round, down, lease.Fence(), last)
		}
		last = lease.Fence()
		must(t, lease.Release(soon(t)))
		for _, n := range f.nodes {
			n.link.heal()
			n.link.refuse.Store(false)
		}
		f.free(t, "a")
	}
}

// A node that is late in the election has a fence of its own. Who resumes the
// lease must not take that for his: the next majority need not know of it.
func TestQuorumResumedFenceIsBelowTheNext(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	lease := f.take(t, "a", time.Minute)
	f.whole(t, lease)
	late := f.nodes[4]
	high := lease.Fence() + 1e12
	must(t, late.Set(t.Context(), f.cfg.Prefix+"{fence}", high, 0).Err())
	late.put(t, "a", strconv.FormatUint(high, 10)+":"+lease.Token(), time.Minute)
	other, links := f.newLocker(t)
	links[0].deaf.Store(true)
	links[1].deaf.Store(true) // that the late one is heard
	resumed, err := other.Resume(soon(t), "a", lease.Token(), 10*time.Second)
	must(t, err)
	must(t, resumed.Release(soon(t)))
	for _, n := range f.nodes {
		n.Del(t.Context(), n.key("a"))
	}
	late.link.deaf.Store(true)
	next := f.take(t, "a", 10*time.Second)
	if next.Fence() <= resumed.Fence() {
		t.Errorf("fence %d follows %d", next.Fence(), resumed.Fence())
	}
	must(t, next.Release(soon(t)))
}

func TestQuorumRefusesBadNodes(t *testing.T) {
	t.Parallel()
	client := func() redis.UniversalClient { return unreachable(t) }
	var none *redis.Client
	twice := client()
	for what, nodes := range map[string][]redis.UniversalClient{
		"none":       nil,
		"one":        {client()},
		"two":        {client(), client()},
		"even":       {client(), client(), client(), client()},
		"nil":        {client(), nil, client()},
		"typed nil":  {client(), none, client()},
		"same twice": {twice, client(), twice},
	} {
		if _, err := lock.NewQuorum(nodes, lock.Config{}); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	_, err := lock.NewQuorum([]redis.UniversalClient{client(), client(), client()}, lock.Config{PollMin: -1})
	wants(t, err, lock.ErrInvalid)
	locker, err := lock.NewQuorum([]redis.UniversalClient{client(), client(), client()}, lock.Config{})
	must(t, err)
	_, err = locker.TryAcquire(t.Context(), "", time.Minute)
	wants(t, err, lock.ErrInvalid)
}
