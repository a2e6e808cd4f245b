package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// five are the nodes that tests of quorums share.
var five = [5]*kind{{start: openPatient}, {start: openPatient}, {start: openPatient}, {start: openPatient}, {start: openPatient}}

// openPatient starts a Redis.
func openPatient(tb testing.TB) backend { return patient(redistest.Start(tb)) }

// patient opens clients that wait for an answer longer than a test does: only
// the locker's own limits are at work. A smaller pool would begin to look, by a
// goroutine that outlives it, for when a node that is down is back.
func patient(s *redistest.Server) backend {
	return func(l *link) redis.UniversalClient {
		return redis.NewClient(&redis.Options{
			Network: "unix", Addr: s.Socket, Dialer: l.dial, DialerRetries: 1, MaintNotificationsConfig: plain,
			ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute, PoolSize: 500,
		})
	}
}

// A fleet is what a test of a quorum works with: on every node a rig, whose link
// is that of the fleet's locker.
type fleet struct {
	nodes  []*rig
	cfg    lock.Config
	locker *lock.Locker
}

// newFleet returns a fleet on the shared nodes.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	opens := make([]backend, len(five))
	for i, k := range five {
		opens[i] = k.share(t)
	}
	return fleetOf(t, opens...)
}

// ownFleet returns a fleet on servers of the test's own.
func ownFleet(t *testing.T, args ...string) (*fleet, []*redistest.Server) {
	t.Helper()
	servers, opens := make([]*redistest.Server, len(five)), make([]backend, len(five))
	for i := range servers {
		servers[i] = redistest.Start(t, args...)
		opens[i] = patient(servers[i])
	}
	return fleetOf(t, opens...), servers
}

func fleetOf(t *testing.T, opens ...backend) *fleet {
	t.Helper()
	f := &fleet{cfg: lock.Config{Prefix: fmt.Sprintf("{%s#%d}:", t.Name(), rigs.Add(1))}}
	for _, open := range opens {
		r := &rig{open: open, cfg: f.cfg}
		r.UniversalClient = r.client(t, new(link))
		f.nodes = append(f.nodes, r)
	}
	var links []*link
	f.locker, links = f.newLocker(t)
	for i, n := range f.nodes {
		n.link, n.locker = links[i], f.locker
	}
	return f
}

// newLocker returns a locker as another process would have it.
func (f *fleet) newLocker(t *testing.T, hooks ...redis.Hook) (*lock.Locker, []*link) {
	t.Helper()
	links, clients := make([]*link, len(f.nodes)), make([]redis.UniversalClient, len(f.nodes))
	for i, n := range f.nodes {
		links[i] = new(link)
		clients[i] = n.client(t, links[i])
		must(t, clients[i].Ping(t.Context()).Err())
		if i < len(hooks) && hooks[i] != nil {
			clients[i].AddHook(hooks[i])
		}
	}
	locker, err := lock.NewQuorum(clients, f.cfg)
	must(t, err)
	t.Cleanup(func() { _ = locker.ReleaseAll(context.Background()) }) // what repairs a lease ends with it
	return locker, links
}

func (f *fleet) take(t *testing.T, name string, ttl time.Duration) *lock.Lease {
	t.Helper()
	lease, err := f.locker.TryAcquire(soon(t), name, ttl)
	must(t, err)
	return lease
}

// warm makes every node know the scripts.
func (f *fleet) warm(t *testing.T) {
	t.Helper()
	for _, n := range f.nodes {
		for range 2 {
			must(t, release(n.newLockerAlone(t).TryAcquire(soon(t), "warm", time.Minute)))
		}
	}
	lease := f.take(t, "warm", time.Minute)
	must(t, lease.Extend(soon(t), time.Minute))
	must(t, lease.Release(soon(t)))
	f.free(t, "warm")
}

// newLockerAlone returns a locker on one node.
func (r *rig) newLockerAlone(t *testing.T) *lock.Locker {
	t.Helper()
	locker, _ := r.newLocker(t, r.cfg)
	return locker
}

// free waits until no node has the lock of a name.
func (f *fleet) free(t *testing.T, name string) {
	t.Helper()
	eventually(t, "no node has the lock of "+name, func() bool {
		for _, n := range f.nodes {
			if n.value(t, name) != "" {
				return false
			}
		}
		return true
	})
}

// whole waits until every node has the lock with the lease's fence.
func (f *fleet) whole(t *testing.T, lease *lock.Lease) {
	t.Helper()
	want := fmt.Sprintf("%d:%s", lease.Fence(), lease.Token())
	eventually(t, "every node has the lease's token and fence", func() bool {
		for _, n := range f.nodes {
			if n.value(t, lease.Name()) != want {
				return false
			}
		}
		return true
	})
}
