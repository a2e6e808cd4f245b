package lock_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// The only master of a cluster dies and its replica takes over, of which nobody tells
// the client: no other node is left that would answer it with MOVED.
func TestANodeThatTookOverIsFoundThoughNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	for name, acks := range map[string]int{"plain": 0, "confirmed": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t, "--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0")
			replica := redistest.Start(t, "--cluster-enabled", "yes")
			first, second := master.Client(), replica.Client()
			must(t, first.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
			host, port, err := net.SplitHostPort(master.Addr)
			must(t, err)
			must(t, second.ClusterMeet(t.Context(), host, port).Err())
			id, err := first.ClusterMyID(t.Context()).Result()
			must(t, err)
			eventually(t, "the replica follows", func() bool {
				return second.ClusterReplicate(t.Context(), id).Err() == nil
			})
			eventually(t, "the replica has a link", func() bool {
				info, err := second.Info(t.Context(), "replication").Result()
				return err == nil && strings.Contains(info, "master_link_status:up")
			})
			rdb := redis.NewClusterClient(&redis.ClusterOptions{
				Addrs:                    []string{master.Addr, replica.Addr},
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() { _ = rdb.Close() })
			locker, err := lock.New(rdb, lock.Config{ReplicaAcks: acks})
			must(t, err)
			eventually(t, "the cluster is ready", func() bool {
				_, err := locker.TryAcquire(t.Context(), "before", time.Minute)
				return err == nil
			})

			master.Kill()
			eventually(t, "the replica takes over", func() bool {
				_ = second.Do(t.Context(), "cluster", "failover", "takeover").Err()
				return second.Set(t.Context(), "ready", 1, 0).Err() == nil
			})
			eventually(t, "a lock is taken", func() bool {
				_, err := locker.TryAcquire(t.Context(), "after", time.Minute)
				return err == nil || acks > 0 && strings.Contains(err.Error(), lock.ErrUnreplicated.Error()+": 0 of 1")
			})
		})
	}
}
