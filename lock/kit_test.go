package lock_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/locktest"
	"github.com/dulyhq/duly/lock/redistest"
)

func TestLockerPassesKit(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) { passesKit(t, kind, "{kit#%d}:") })
	}
	t.Run("names in slots of their own", func(t *testing.T) { passesKit(t, kinds["cluster"], "kit#%d:") })
}

// passesKit runs the kit on a kind of Redis, with a prefix that has a number in it.
func passesKit(t *testing.T, k *kind, prefix string) {
	t.Parallel()
	locktest.TestLocker(t, func(t *testing.T) locktest.Harness {
		r := newRig(t, k.share(t))
		r.cfg.Prefix = fmt.Sprintf(prefix, rigs.Add(1))
		return locktest.Harness{
			Open: func() *lock.Locker {
				locker, _ := r.newLocker(t, r.cfg)
				return locker
			},
			Nodes: []redis.UniversalClient{r.UniversalClient},
		}
	})
}

func TestQuorumPassesKit(t *testing.T) {
	t.Parallel()
	var servers [3]*redistest.Server
	for i := range servers {
		servers[i] = redistest.Start(t)
	}
	locktest.TestLocker(t, func(t *testing.T) locktest.Harness {
		nodes := func() (clients []redis.UniversalClient) {
			for _, s := range servers {
				opts := *s.Client().Options()
				client := redis.NewClient(&opts)
				t.Cleanup(func() { _ = client.Close() })
				clients = append(clients, client)
			}
			return clients
		}
		prefix := fmt.Sprintf("kit#%d:", rigs.Add(1))
		return locktest.Harness{
			Open: func() *lock.Locker {
				locker, err := lock.NewQuorum(nodes(), lock.Config{Prefix: prefix})
				must(t, err)
				return locker
			},
			Nodes:  nodes(),
			Unfair: true,
		}
	})
}
