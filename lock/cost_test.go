package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// A count is a hook that counts what is sent.
type count struct {
	hooks
	scripts, trips atomic.Int64
}

func (c *count) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.add([]redis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (c *count) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.add(cmds)
		return next(ctx, cmds)
	}
}

func (c *count) add(cmds []redis.Cmder) {
	c.trips.Add(1)
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			c.scripts.Add(1)
		}
	}
}

// counted returns a locker whose scripts are counted.
func (r *rig) counted(t *testing.T, c *count) *lock.Locker {
	t.Helper()
	client := r.client(t, new(link))
	client.AddHook(c) // the last is the closest to the network
	locker, err := lock.New(client, r.cfg)
	must(t, err)
	return locker
}

func TestUncontendedLockCostsTwoCommands(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		var c count
		locker := r.counted(t, &c)
		const times = 50
		for range times {
			must(t, release(locker.Acquire(t.Context(), "a", time.Minute)))
		}
		if sent := c.scripts.Load(); sent != 2*times {
			t.Errorf("%d scripts for %d times, want 2 each", sent, times)
		}
	})
}

func TestHandoverCostsThreeCommandsHoweverManyWait(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		if strings.HasSuffix(t.Name(), "/mini") {
			t.Skip("miniredis is so slow that waiters look meanwhile to keep their place")
		}
		warm(t, r)
		for _, waiters := range []int{8, 32, 64, 256} {
			handovers, sent := saturate(t, r, fmt.Sprint(waiters), waiters)
			cost := float64(sent) / float64(handovers)
			t.Logf("%d waiters: %d handovers, %.2f scripts each", waiters, handovers, cost)
			if cost > 3 {
				t.Errorf("%d waiters: %.2f scripts a handover, want 3 at most", waiters, cost)
			}
		}
	})
}

// saturate has many take turns at a lock. It counts from when each has had one:
// by then the subscriptions stand, without which there is nothing but polling.
func saturate(t *testing.T, r *rig, name string, waiters int) (handovers int, sent int64) {
	t.Helper()
	const clients, each = 4, 4
	var c count
	var lockers [clients]*lock.Locker
	for i := range lockers {
		lockers[i] = r.counted(t, &c)
	}
	first := r.take(t, name, time.Minute)
	turns := make(chan error)
	for i := range waiters {
		go func() {
			for range each {
				lease, err := lockers[i%clients].Acquire(soon(t), name, time.Minute)
				if err == nil {
					<-time.After(time.Millisecond)
					err = lease.Release(context.Background())
				}
				turns <- err
			}
		}()
	}
	r.inLine(t, name, waiters)
	must(t, first.Release(t.Context()))
	for range waiters {
		must(t, <-turns)
	}
	before := c.scripts.Load()
	for range waiters * (each - 1) {
		must(t, <-turns)
	}
	return waiters * (each - 1), c.scripts.Load() - before
}

// keepFor takes locks for half a minute, one after another, and keeps them alive
// for a while of virtual time.
func keepFor(t *testing.T, leases int, while time.Duration) (scripts, trips int64) {
	t.Helper()
	virtual(t, func(t *testing.T, _ *lock.Locker, _ *link, probe *redis.Client) {
		locker, err := lock.New(probe, lock.Config{Prefix: "{v}:"})
		must(t, err)
		kept := make([]*lock.Lease, leases)
		for i := range kept {
			kept[i], err = locker.TryAcquire(t.Context(), fmt.Sprint(i), 30*time.Second)
			must(t, err)
			kept[i].KeepAlive()
			time.Sleep(5 * time.Millisecond)
		}
		var c count
		probe.AddHook(&c)
		time.Sleep(while)
		scripts, trips = c.scripts.Load(), c.trips.Load()
		for _, lease := range kept {
			must(t, lease.Err())
		}
		must(t, locker.ReleaseAll(t.Context()))
	})
	return scripts, trips
}

func TestKeptLeaseCostsHalfACommandASecondAtMost(t *testing.T) {
	t.Parallel()
	for _, leases := range []int{1, 100} {
		const while = 10 * time.Minute
		scripts, trips := keepFor(t, leases, while)
		rate := float64(scripts) / float64(leases) / while.Seconds()
		t.Logf("%d leases: %.3f scripts a second each, %d round trips in %v", leases, rate, trips, while)
		if rate > 0.5 {
			t.Errorf("%d leases: %.2f scripts a second each, want half a one at most", leases, rate)
		}
		if trips > 65 {
			t.Errorf("%d leases: %d round trips in %v, want one in 10 s for all of them", leases, trips, while)
		}
	}
}

// A Redis that has forgotten its scripts costs a batch one more round trip, not
// one for each of its leases.
func TestForgottenScriptCostsABatchOneRoundTrip(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, _ *lock.Locker, _ *link, probe *redis.Client) {
		locker, err := lock.New(probe, lock.Config{Prefix: "{v}:"})
		must(t, err)
		for i := range 50 {
			lease, err := locker.TryAcquire(t.Context(), fmt.Sprint(i), 30*time.Second)
			must(t, err)
			lease.KeepAlive()
		}
		time.Sleep(15 * time.Second)
		must(t, probe.ScriptFlush(t.Context()).Err())
		var c count
		probe.AddHook(&c)
		time.Sleep(6 * time.Second)
		if trips := c.trips.Load(); trips != 2 {
			t.Errorf("%d round trips, want 2", trips)
		}
		must(t, locker.ReleaseAll(t.Context()))
	})
}
