package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// subscriptions is how many listen on a channel, plainly and in its slot.
func (r *rig) subscriptions(t *testing.T, channel string) (plain, sharded int64) {
	t.Helper()
	counts, err := r.PubSubNumSub(t.Context(), channel).Result()
	must(t, err)
	if _, cluster := r.UniversalClient.(*redis.ClusterClient); cluster {
		inSlot, err := r.PubSubShardNumSub(t.Context(), channel).Result()
		must(t, err)
		sharded = inSlot[channel]
	}
	return counts[channel], sharded
}

func TestOneSubscriptionHoweverManyWait(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		_, cluster := r.UniversalClient.(*redis.ClusterClient)
		untagged := fmt.Sprintf("%s%d:", t.Name(), rigs.Add(1))
		for _, prefix := range []string{r.cfg.Prefix, untagged} {
			locker, _ := r.newLocker(t, lock.Config{Prefix: prefix})
			ctx, cancel := context.WithCancel(soon(t))
			ended := make(chan error)
			const waiters = 20
			for i := range waiters {
				name := fmt.Sprint(i % 4)
				_, err := locker.TryAcquire(ctx, name, time.Minute)
				if !errors.Is(err, lock.ErrHeld) {
					must(t, err)
				}
				go func() { ended <- release(locker.Acquire(ctx, name, time.Minute)) }()
			}
			wantPlain, wantSharded := int64(1), int64(0)
			if cluster && prefix == r.cfg.Prefix {
				wantPlain, wantSharded = 0, 1
			}
			eventually(t, "all wait", func() bool {
				all := 0
				for i := range 4 {
					info, err := locker.Inspect(ctx, fmt.Sprint(i))
					must(t, err)
					all += info.Waiters
				}
				plain, sharded := r.subscriptions(t, prefix+"{wake}")
				return all == waiters && plain == wantPlain && sharded == wantSharded
			})
			cancel()
			for range waiters {
				wants(t, <-ended, context.Canceled)
			}
			left := time.Now()
			eventually(t, "nobody listens", func() bool {
				plain, sharded := r.subscriptions(t, prefix+"{wake}")
				return plain+sharded == 0
			})
			t.Logf("prefix %q: nobody listens %v after the last has left", prefix, time.Since(left))
			must(t, locker.ReleaseAll(t.Context()))
		}
	})
}

// takeTurns has waiters of several lockers take turns at a lock, and returns
// when each has had two.
func takeTurns(t *testing.T, lockers ...*lock.Locker) {
	t.Helper()
	ended := make(chan error)
	for _, locker := range lockers {
		for range 2 {
			go func() {
				err := release(locker.Acquire(soon(t), "a", time.Minute))
				if err == nil {
					err = release(locker.Acquire(soon(t), "a", time.Minute))
				}
				ended <- err
			}()
		}
	}
	for range 2 * len(lockers) {
		must(t, <-ended)
	}
}

// A subscription that breaks again and again delays, and loses nobody.
func TestBrokenSubscriptionsBlockNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, openRedis(t)) // a server of its own, for all that subscribe are cut off
	killer := r.client(t, new(link))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = killer.Do(context.Background(), "client", "kill", "type", "pubsub").Err()
			case <-stop:
				return
			}
		}
	}()
	var lockers [4]*lock.Locker
	for i := range lockers {
		lockers[i], _ = r.newLocker(t, r.cfg)
	}
	takeTurns(t, lockers[:]...)
	close(stop)
	<-stopped
}

// A user may be denied the channel, or the command to publish alone: then a
// subscription stands, and nothing comes.
func TestDeniedChannelsBlockNobody(t *testing.T) {
	t.Parallel()
	for story, rules := range map[string][]any{
		"no channel": {"resetchannels"},
		"no publish": {"allchannels", "-publish", "-spublish"},
	} {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			must(t, server.Client().Do(t.Context(), append([]any{"acl", "setuser", "poor", "on", ">pw", "~*", "+@all"}, rules...)...).Err())
			var lockers [2]*lock.Locker
			for i := range lockers {
				client := redis.NewClient(&redis.Options{
					Network: "unix", Addr: server.Socket, Username: "poor", Password: "pw", MaintNotificationsConfig: plain,
				})
				t.Cleanup(func() { _ = client.Close() })
				var err error
				lockers[i], err = lock.New(client, lock.Config{})
				must(t, err)
			}
			takeTurns(t, lockers[:]...)
		})
	}
}

// Redis before 7 knows no channels in slots.
func TestClusterWithoutShardedChannels(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes", "--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", "")
	node := server.Client()
	must(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	eventually(t, "the cluster is ready", func() bool { return node.Set(t.Context(), "ready", "1", 0).Err() == nil })
	r := newRig(t, func(l *link) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr}, Dialer: l.dial, DialerRetries: 1, MaintNotificationsConfig: plain})
	})
	held := r.take(t, "a", time.Minute)
	waiting, _ := r.newLocker(t, r.cfg)
	turns := make(chan turn, 1)
	r.stand(soon(t), t, waiting, "a", 1, turns)
	channel := r.cfg.Prefix + "{wake}"
	spy := node.Subscribe(t.Context(), channel)
	defer func() { _ = spy.Close() }()
	eventually(t, "it listens, and so do we", func() bool {
		plain, _ := node.PubSubNumSub(t.Context(), channel).Result()
		return plain[channel] == 2
	})
	must(t, held.Release(t.Context()))
	told, err := spy.ReceiveMessage(soon(t))
	must(t, err)
	if !strings.HasPrefix(told.Payload, r.key("a")+"\n") {
		t.Errorf("heard %q", told.Payload)
	}
	must(t, next(t, turns, 1).Release(t.Context()))
}

// Whoever may publish can make a waiter look, and nothing else.
func TestSpuriousMessagesGrantNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		held := r.take(t, "a", time.Minute)
		stored := r.value(t, "a")
		waiting, link := r.newLocker(t, r.cfg)
		turns := make(chan turn, 1)
		r.stand(soon(t), t, waiting, "a", 1, turns)
		channel := r.cfg.Prefix + "{wake}"
		eventually(t, "it listens", func() bool {
			plain, sharded := r.subscriptions(t, channel)
			return plain+sharded == 1
		})
		token, err := r.ZRange(t.Context(), r.cfg.Prefix+"{line}:a", 0, 0).Result()
		must(t, err)
		publish := r.Publish
		if _, cluster := r.UniversalClient.(*redis.ClusterClient); cluster {
			publish = r.SPublish
		}
		for range 20 {
			for _, message := range []string{
				r.key("a") + "\n" + token[0], r.key("a") + "\n", r.key("a") + "\nnobody", r.key("b") + "\n" + token[0],
				"\n" + token[0], "\n", "", r.key("a"), "\xff\x00\n\n\n", strings.Repeat("x", 1<<16),
			} {
				must(t, publish(t.Context(), channel, message).Err())
			}
		}
		sent := link.scripts.Load()
		must(t, publish(t.Context(), channel, r.key("a")+"\n"+token[0]).Err())
		eventually(t, "it has looked after the last", func() bool { return link.scripts.Load() > sent })
		select {
		case got := <-turns:
			t.Fatalf("a message was enough: %+v", got)
		default:
		}
		if got := r.value(t, "a"); got != stored {
			t.Fatalf("the lock became %q", got)
		}
		must(t, held.Release(t.Context()))
		must(t, next(t, turns, 1).Release(t.Context()))
	})
}

// The shards of a Ring tell what is on them, and a Ring that is closed panics when
// it is subscribed to.
func TestWaitersOnARing(t *testing.T) {
	t.Parallel()
	shards := map[string]string{"one": redistest.Start(t).Addr, "two": redistest.Start(t).Addr}
	for _, prefix := range []string{"{tagged}:", "each its own:"} {
		ring := redis.NewRing(&redis.RingOptions{Addrs: shards})
		locker, err := lock.New(ring, lock.Config{Prefix: prefix})
		must(t, err)
		for name := range 8 { // on either shard
			lease, err := locker.TryAcquire(t.Context(), fmt.Sprint(name), time.Minute)
			must(t, err)
			next := make(chan error)
			go func() { next <- release(locker.Acquire(soon(t), fmt.Sprint(name), time.Minute)) }()
			eventually(t, "one waits", func() bool {
				info, err := locker.Inspect(t.Context(), fmt.Sprint(name))
				return err == nil && info.Waiters == 1
			})
			must(t, lease.Release(t.Context()))
			must(t, <-next)
		}
		_, err = locker.TryAcquire(t.Context(), "a", time.Minute)
		must(t, err)
		next := make(chan error)
		go func() { next <- release(locker.Acquire(soon(t), "a", time.Minute)) }()
		eventually(t, "one waits", func() bool {
			info, err := locker.Inspect(t.Context(), "a")
			return err == nil && info.Waiters == 1
		})
		must(t, ring.Close())
		if err := <-next; err == nil {
			t.Error("a lock was had on a closed Ring")
		}
	}
}

// Where a server accepts connections and resets them, one attempt to listen makes one
// connection, and soon there are no more than one in a second.
func TestListenWaitsLongerForAServerThatResets(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = ln.Close() }()
	var came atomic.Int32
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: ln.Addr().String()})
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	lock.Listen(ctx, client, "channel", time.Second, func(string) {}, func(bool) {})
	if n := came.Load(); n < 5 || n > 16 { // 50 ms doubled up to 2 s, and half of that at least
		t.Errorf("%d connections in 10 s", n)
	}
}
