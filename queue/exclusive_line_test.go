package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
)

// deadWaiter leaves in the line of a key what a process leaves that was killed while
// it waited. It did so for another key: nothing that it still sends is about this one.
func (r *rig) deadWaiter(t *testing.T, key string) {
	t.Helper()
	other := key + " of the waiter"
	held := r.acquire(t, other, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := r.q.Locker().Acquire(ctx, other, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("the waiter got %v", err)
		}
	}()
	r.inLine(t, other, 1)
	for _, set := range []string{"lock:{line}:", "lock:{alive}:"} {
		entries, err := r.ZRangeWithScores(t.Context(), r.key(set+other), 0, -1).Result()
		must(t, err)
		must(t, r.ZAdd(t.Context(), r.key(set+key), entries...).Err())
	}
	cancel()
	<-done
	must(t, held.Release(t.Context()))
}

func (r *rig) inLine(t *testing.T, key string, n int64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		info, err := r.q.Locker().Inspect(t.Context(), key)
		must(t, err)
		if int64(info.Waiters) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d in line of %q, want %d", info.Waiters, key, n)
		}
	}
}

// The lock that a settlement grants to a waiter that is dead is free a second later.
// Nobody looks: the look stays where the lease of the task would have ended.
func TestADeadWaiterCostsTheParkedASecond(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.keyed(t, "key", "a", "b")
	a := c.popOne(t, "a")
	equal(t, "popped", ids(c.pop(t, 9)), []string{})
	c.deadWaiter(t, "key")
	c.settle(t, duly.Acked, a) // grants the lock to the dead waiter
	ds, wait, err := c.q.Pop(t.Context(), 9, time.Hour)
	must(t, err)
	equal(t, "popped", ids(ds), []string{})
	t.Logf("the lock ends in %v; asked to come again in %v", c.PTTL(t.Context(), c.key("lock:key")).Val(), wait)
	c.step(1001 * time.Millisecond)
	equal(t, "lock", c.Exists(t.Context(), c.key("lock:key")).Val(), 0)
	c.popOne(t, "b")
}

// The same where the waiter takes the lock for 5 s and dies with it.
func TestAWaiterThatDiesAsHolderCostsTheParkedItsTTL(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	first := c.acquire(t, "key", time.Hour)
	c.keyed(t, "key", "b")
	equal(t, "popped", ids(c.pop(t, 9)), []string{})
	got := make(chan *lock.Lease, 1)
	go func() {
		lease, err := c.q.Locker().Acquire(t.Context(), "key", 5*time.Second)
		if err != nil {
			t.Error(err)
		}
		got <- lease
	}()
	c.inLine(t, "key", 1)
	must(t, first.Release(t.Context()))
	<-got // and is never heard of again
	_, wait, err := c.q.Pop(t.Context(), 9, time.Hour)
	must(t, err)
	t.Logf("the lock ends in %v; asked to come again in %v", c.PTTL(t.Context(), c.key("lock:key")).Val(), wait)
	c.step(5001 * time.Millisecond)
	equal(t, "lock", c.Exists(t.Context(), c.key("lock:key")).Val(), 0)
	c.popOne(t, "b")
}

// The fence that a pop takes is one above what it read before it handed locks over
// in the same script, which took fences too. The clock is behind the fence, as after
// a step back of an hour.
func TestFencesOfAKeyRiseWhereThePopHandsOver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		must(t, r.Set(ctx, r.key("fence"), r.now(t).Add(time.Hour).UnixMicro(), 0).Err())
		keys := []string{"key 1", "key 2", "key 3"}
		var ds []*duly.Delivery
		leases := make(map[string]chan *lock.Lease)
		for _, key := range keys {
			r.keyed(t, key, "task of "+key)
			ds = append(ds, r.popOne(t, "task of "+key))
		}
		for _, key := range keys {
			got := make(chan *lock.Lease, 1)
			leases[key] = got
			go func() {
				lease, err := r.q.Locker().Acquire(ctx, key, time.Minute)
				if err != nil {
					t.Error(err)
				}
				got <- lease
			}()
			r.inLine(t, key, 1)
		}
		r.lapse(t, ds...)
		r.enqueue(t, "plain")
		plain := r.pop(t, 9)
		equal(t, "popped", ids(plain), []string{"plain"})
		highest := make(map[string]uint64)
		for _, key := range keys {
			lease := <-leases[key]
			highest[key] = lease.Fence()
			must(t, lease.Release(ctx))
		}
		counter, err := r.Get(ctx, r.key("fence")).Uint64()
		must(t, err)
		for _, key := range keys {
			if counter < highest[key] {
				t.Errorf("the fence counter is %d, below the fence of the lease on %q, %d", counter, key, highest[key])
			}
		}
		for _, d := range r.pop(t, 9) {
			if d.Fence <= highest[d.LockKey] {
				t.Errorf("%q: fence %d after the application's %d", d.LockKey, d.Fence, highest[d.LockKey])
			}
		}
	})
}

// The reply of a pop is lost; an operator frees the key, the application takes it and
// gives it back. The pop again delivers the task under the fence of before.
func TestARepeatedPopDoesNotGoBackBehindAFence(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a")
		r.link.lose()
		_, _, err := r.q.Pop(t.Context(), 2, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		must(t, r.Del(t.Context(), r.key("lock:key")).Err()) // evicted
		lease := r.acquire(t, "key", time.Hour)
		must(t, lease.Release(t.Context()))
		a := r.popOne(t, "a")
		if a.Fence <= lease.Fence() {
			t.Errorf("fence %d after %d", a.Fence, lease.Fence())
		}
	})
}

// A line of another type costs the parked the whole lease of who had the key.
func TestALineOfAnotherTypeDoesNotKeepAKeyFromBeingHandedOver(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		a := r.popOne(t, "a")
		equal(t, "popped", ids(r.pop(t, 9)), []string{})
		must(t, r.LPush(t.Context(), r.key("lock:{line}:key"), "x").Err())
		r.settle(t, duly.Acked, a)
		equal(t, "lock", r.Exists(t.Context(), r.key("lock:key")).Val(), 0)
		r.popOne(t, "b")
	})
}

// An empty string at a lock's key is somebody's lock for the application, which adopts
// it; for tasks it is no lock and blocks for ever.
func TestAnEmptyLockWithoutTTLIsAdopted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		must(t, r.Set(t.Context(), r.key("lock:key"), "", 0).Err())
		r.keyed(t, "key", "a")
		equal(t, "popped", ids(r.pop(t, 9)), []string{})
		if ttl := r.PTTL(t.Context(), r.key("lock:key")).Val(); ttl < 0 {
			t.Errorf("no TTL after a pop: %v", ttl)
		}
	})
}

// What is no lock and ends in a second blocks for a second.
func TestAKeyOfAnotherTypeBlocksAsLongAsItLasts(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	must(t, c.LPush(t.Context(), c.key("lock:key"), "x").Err())
	must(t, c.PExpire(t.Context(), c.key("lock:key"), time.Second).Err())
	c.keyed(t, "key", "a")
	_, wait, err := c.q.Pop(t.Context(), 9, time.Hour)
	must(t, err)
	if wait > 2*time.Second {
		t.Errorf("it ends in 1s; asked to come again in %v", wait)
	}
}

// Whom else the release should have told is a hint.
func TestAReleaseDoesNotFailHalfWay(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lease := r.acquire(t, "key", time.Hour)
		must(t, plantString(r, t, r.key("blocked")))
		must(t, lease.Release(t.Context()))
		must(t, r.Del(t.Context(), r.key("blocked")).Err())
	})
}

// calls returns how often f made scripts call a command, and how long the longest
// script took.
func (r *rig) calls(t *testing.T, f func()) (calls map[string]int, total int, longest time.Duration) {
	t.Helper()
	ctx := t.Context()
	must(t, r.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
	must(t, r.ConfigSet(ctx, "slowlog-max-len", "1000").Err())
	must(t, r.ConfigResetStat(ctx).Err())
	must(t, r.SlowLogReset(ctx).Err())
	f()
	entries, err := r.SlowLogGet(ctx, 1000).Result()
	must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Args[0], "eval") {
			longest = max(longest, e.Duration)
		}
	}
	info, err := r.Info(ctx, "commandstats").Result()
	must(t, err)
	calls = make(map[string]int)
	for _, row := range strings.Split(info, "\r\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(row, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		n, _ := strconv.Atoi(rest[:strings.IndexByte(rest, ',')])
		calls[name] = n
		total += n
	}
	return calls, total, longest
}

// A process with many waiters was killed: one pop buries them for all keys it sees.
func TestAPopDropsABoundedNumberOfDeadWaiters(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	ctx := t.Context()
	const keys, waiters = 100, 1000
	r.hundred(t, keys, 1)
	var tasks []duly.Task
	for i := range keys {
		key := fmt.Sprintf("key %03d", i)
		line := make([]redis.Z, waiters)
		for j := range line {
			line[j] = redis.Z{Score: float64(j + 1), Member: fmt.Sprintf("dead:1#x/%d", j)}
		}
		must(t, r.ZAdd(ctx, r.key("lock:{line}:"+key), line...).Err())
		must(t, r.PExpire(ctx, r.key("lock:{line}:"+key), 20*time.Second).Err())
		must(t, r.Del(ctx, r.key("lock:"+key)).Err()) // its holder's lease is over
	}
	_ = tasks
	blocked, err := r.ZRange(ctx, r.key("blocked"), 0, -1).Result()
	must(t, err)
	var zs []redis.Z
	for _, key := range blocked {
		zs = append(zs, redis.Z{Score: 1, Member: key})
	}
	must(t, r.ZAdd(ctx, r.key("blocked"), zs...).Err())
	calls, total, longest := r.calls(t, func() { r.pop(t, 1) })
	t.Logf("%d commands in one pop, which took %v: %v", total, longest, calls)
	if total > 10_000 {
		t.Errorf("%d commands in one script", total)
	}
}
