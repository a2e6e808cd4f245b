package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock/redistest"
)

// Masters of a cluster are killed and their replicas take over. Then the slots of the
// queues are moved from node to node. Workers and callers follow by themselves.
func TestClusterThatFailsOverAndMovesSlots(t *testing.T) {
	r := begin(t, "cluster")
	kills, moves := pick(1, 3, 50), pick(3, 30, 500)
	n := startCluster(t)
	c := r.assemble(process{
		Redis: place{Addrs: n.addrs(), Cluster: true}, More: n.namesApart(), Lease: 500 * time.Millisecond, MaxCrashes: 1_000_000,
	})
	c.mustHire()
	c.mustHire()
	ts := newTries()
	locks := r.takeLocks(c.rdb)
	var gaps []span
	c.during(ts, 4*time.Millisecond, r.mixed, func() {
		for range kills {
			time.Sleep(time.Duration(200+r.rnd.IntN(200)) * time.Millisecond)
			gaps = append(gaps, n.failover(c, r.rnd.IntN(3)))
		}
		began := time.Now()
		for range moves {
			pause := time.Duration(r.rnd.IntN(50)) * time.Millisecond
			n.move(slotOf(c.turn(r.rnd.IntN(3)).Name()), pause)
			r.fault("slot moved", 1)
			time.Sleep(time.Duration(50+r.rnd.IntN(200)) * time.Millisecond)
		}
		r.measure("moves of slots, s", time.Since(began).Seconds())
		for i := range 3 {
			c.goesOn(span{to: time.Now().UnixMicro(), hits: hits(i)}, 10*time.Second)
		}
	})
	c.drain(1, time.Minute)
	c.failedOver(ts, gaps, locks(), 0)
}

// hits tells the tasks of the i-th of three queues.
func hits(i int) func(string) bool {
	return func(id string) bool {
		_, number, _ := strings.Cut(id, "-")
		n, err := strconv.Atoi(number)
		return err == nil && n%3 == i
	}
}

// nodes are those of a cluster.
type nodes struct {
	t       *testing.T
	servers []*redistest.Server
}

// startCluster starts three masters and a replica of each.
func startCluster(t *testing.T) *nodes {
	t.Helper()
	if _, err := exec.LookPath("redis-cli"); err != nil {
		if os.Getenv("DULY_REQUIRE_REDIS") == "1" {
			t.Fatal("DULY_REQUIRE_REDIS=1, and no redis-cli on the PATH")
		}
		t.Skip("skipped: needs redis-cli on the PATH")
	}
	n := &nodes{t: t}
	for range 6 {
		n.servers = append(n.servers, redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
			"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"))
	}
	args := append([]string{"--cluster", "create"}, n.addrs()...)
	text, err := exec.Command("redis-cli", append(args, "--cluster-replicas", "1", "--cluster-yes")...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli: %v: %s", err, text)
	}
	n.ready()
	return n
}

func (n *nodes) addrs() (all []string) {
	for _, s := range n.servers {
		all = append(all, s.Addr)
	}
	return all
}

// ready waits until all nodes think that all is well, and the replicas follow.
func (n *nodes) ready() {
	n.t.Helper()
	for _, s := range n.servers {
		rdb := s.Client()
		eventually(n.t, "the cluster is ready", 30*time.Second, func() bool {
			state, err := rdb.ClusterInfo(n.t.Context()).Result()
			if err != nil || !strings.Contains(state, "cluster_state:ok") {
				return false
			}
			info, err := rdb.Info(n.t.Context(), "replication").Result()
			return err == nil && (strings.Contains(info, "role:master") && strings.Contains(info, "connected_slaves:1") ||
				strings.Contains(info, "master_link_status:up"))
		})
	}
}

// namesApart are two names of queues whose slots are on other masters than the first.
func (n *nodes) namesApart() (names []string) {
	const third = 16384 / 3
	used := map[int]bool{slotOf(queueName) / (third + 1): true}
	for i := 0; len(names) < 2; i++ {
		name := fmt.Sprint(queueName, i)
		if at := slotOf(name) / (third + 1); !used[at] {
			used[at] = true
			names = append(names, name)
		}
	}
	return names
}

// keyOf is a key in the slot of a queue.
func keyOf(name string) string { return "probe:{" + name + "}" }

// slotOf is the slot of a queue: the CRC16 (XMODEM) of its name, by the specification of
// Redis Cluster.
func slotOf(name string) int {
	var crc uint16
	for _, b := range []byte(name) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

// owner is the node that has a slot, as another node or the same sees it.
func (n *nodes) owner(slot int, seen *redistest.Server) *redistest.Server {
	n.t.Helper()
	shards, err := seen.Client().ClusterShards(n.t.Context()).Result()
	must(n.t, err)
	for _, shard := range shards {
		for _, r := range shard.Slots {
			if int(r.Start) > slot || slot > int(r.End) {
				continue
			}
			for _, node := range shard.Nodes {
				if node.Role == "master" {
					return n.server(net.JoinHostPort(node.IP, strconv.FormatInt(node.Port, 10)))
				}
			}
		}
	}
	return nil
}

func (n *nodes) server(addr string) *redistest.Server {
	n.t.Helper()
	for _, s := range n.servers {
		if s.Addr == addr {
			return s
		}
	}
	n.t.Fatalf("%q is no node", addr)
	return nil
}

// id is what a node is called in its cluster.
func (n *nodes) id(s *redistest.Server) string {
	n.t.Helper()
	id, err := s.Client().ClusterMyID(n.t.Context()).Result()
	must(n.t, err)
	return id
}

// failover kills the master of the i-th queue, waits until its replica has taken over
// and work goes on, and starts it again: it follows then.
func (n *nodes) failover(c *crew, i int) span {
	n.t.Helper()
	name := c.turn(i).Name()
	master := n.owner(slotOf(name), n.servers[0])
	gap := span{from: replicated(n.t, master, keyOf(name)), hits: hits(i)}
	gap.fault = time.Now().UnixMicro()
	master.Kill()
	c.fault("master killed", 1)
	alive := n.servers[0]
	if alive == master {
		alive = n.servers[1]
	}
	eventually(n.t, "a replica has the slots", 30*time.Second, func() bool {
		now := n.owner(slotOf(name), alive)
		return now != nil && now != master
	})
	gap.to = time.Now().UnixMicro()
	c.goesOn(gap, 20*time.Second)
	master.Restart()
	n.ready()
	return gap
}

// move moves a slot to the next master, with a pause after each key.
func (n *nodes) move(slot int, pause time.Duration) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var masters []*redistest.Server // which know of a move at once
	for _, s := range n.servers {
		role, err := s.Client().Do(ctx, "ROLE").Slice()
		must(n.t, err)
		if role[0] == "master" {
			masters = append(masters, s)
		}
	}
	from := n.owner(slot, masters[0])
	to := masters[(slices.Index(masters, from)+1)%len(masters)]
	fromID, toID := n.id(from), n.id(to)
	must(n.t, to.Client().Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err())
	source := from.Client()
	must(n.t, source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err())
	host, port, err := net.SplitHostPort(to.Addr)
	must(n.t, err)
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, 1).Result()
		must(n.t, err)
		if len(keys) == 0 {
			break
		}
		must(n.t, source.Migrate(ctx, host, port, keys[0], 0, 5*time.Second).Err())
		time.Sleep(pause)
	}
	for _, s := range append([]*redistest.Server{to}, masters...) {
		must(n.t, s.Client().Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err())
	}
}
