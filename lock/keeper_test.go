package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

func TestKeptLeasesAreRenewedEachThirdOfTheirTTL(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, _ *link, probe *redis.Client) {
		ttls := []time.Duration{300 * time.Millisecond, 2 * time.Second, 7 * time.Second, 30 * time.Second, time.Minute}
		renewed := make(map[string]int)
		var mu sync.Mutex
		counting, err := lock.New(probe, lock.Config{Prefix: "{v}:", Observer: func(e lock.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == lock.Renewed && e.Err == nil {
				renewed[e.Name]++
			}
		}})
		must(t, err)
		for _, ttl := range ttls {
			lease, err := counting.TryAcquire(t.Context(), ttl.String(), ttl)
			must(t, err)
			lease.KeepAlive()
			lease.KeepAlive() // once is enough
		}
		const span = 2 * time.Minute
		time.Sleep(span)
		for _, ttl := range ttls {
			_, err := locker.TryAcquire(t.Context(), ttl.String(), ttl)
			wants(t, err, lock.ErrHeld)
			// One that others are sent with comes a thirtieth of its TTL early.
			least, most := int(span/(ttl/3))-1, int(span/(ttl/3-ttl/30))+1
			mu.Lock()
			got := renewed[ttl.String()]
			mu.Unlock()
			if got < least || got > most {
				t.Errorf("TTL %v: %d renewals in %v, want %d to %d", ttl, got, span, least, most)
			}
		}
		must(t, counting.ReleaseAll(t.Context()))
	})
}

// Leases that are renewed together end each for a reason of its own.
func TestLeasesOfABatchAreTreatedApart(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		kept := make(map[string]*lock.Lease)
		for _, name := range []string{"fine", "gone", "stolen"} {
			kept[name] = r.take(t, name, 2*time.Second)
		}
		must(t, r.Del(t.Context(), r.key("gone")).Err())
		r.put(t, "stolen", "1:theirs", time.Hour)
		for _, lease := range kept {
			lease.KeepAlive()
		}
		finished(t, kept["gone"].Done())
		finished(t, kept["stolen"].Done())
		wants(t, kept["gone"].Err(), lock.ErrExpired)
		wants(t, kept["stolen"].Err(), lock.ErrLost)
		must(t, kept["fine"].Err())
		if got := r.value(t, "stolen"); got != "1:theirs" {
			t.Errorf("the thief has %q", got)
		}
		must(t, r.locker.ReleaseAll(t.Context()))
	})
}

// Nothing is sent for leases that have been released.
func TestReleasedLeasesLeaveTheKeeperIdle(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, locker *lock.Locker, l *link, probe *redis.Client) {
		for range 2 {
			for i := range 200 {
				lease, err := locker.TryAcquire(t.Context(), fmt.Sprint(i), 30*time.Second)
				must(t, err)
				lease.KeepAlive()
				if i%2 == 0 {
					must(t, lease.Release(t.Context()))
				}
			}
			time.Sleep(65 * time.Second) // no renewal is on its way then
			must(t, locker.ReleaseAll(t.Context()))
			sent := l.scripts.Load()
			time.Sleep(time.Hour)
			if got := l.scripts.Load(); got != sent {
				t.Errorf("%d scripts are sent for leases that are released", got-sent)
			}
		}
		if n, err := probe.Keys(t.Context(), "{v}:[0-9]*").Result(); err != nil || len(n) != 0 {
			t.Errorf("left: %v %v", n, err)
		}
	})
}

// Whatever is called at once, the leases are released in the end.
func TestKeeperInConcurrentUse(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const ttl = 500 * time.Millisecond
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				ctx := context.WithoutCancel(t.Context())
				for round := range 3 {
					names := []string{fmt.Sprint(i), fmt.Sprint(i, "b")}
					leases, err := r.locker.AcquireAll(ctx, ttl, names...) // keeps, and keeps no longer
					if errors.Is(err, lock.ErrExpired) {
						continue // the machine stood still
					}
					if err != nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
					var calls sync.WaitGroup
					for _, lease := range leases {
						calls.Go(lease.KeepAlive)
						calls.Go(func() { _ = lease.Extend(ctx, ttl) })
						calls.Go(func() {
							<-time.After(rand.N(2 * ttl))
							_ = lease.Release(ctx)
						})
					}
					calls.Wait()
				}
			})
		}
		all.Wait()
		eventually(t, "all are free", func() bool {
			var cursor uint64
			keys, _, err := r.Scan(t.Context(), cursor, r.cfg.Prefix+"[0-9]*", 1000).Result()
			must(t, err)
			return len(keys) == 0
		})
		sent := r.link.scripts.Load()
		<-time.After(ttl)
		if got := r.link.scripts.Load(); got != sent {
			t.Errorf("%d scripts are sent for leases that are released", got-sent)
		}
	})
}
