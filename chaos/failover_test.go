package chaos

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// A master whose replica has been cut off goes on, is killed, and the replica takes its
// place: what was acknowledged after the cut is lost, and nothing else.
func TestFailoverLosesWhatTheReplicaHadNot(t *testing.T) {
	failover(t, "failover, link cut", 0)
}

// With ReplicaAcks no task is lost: what was enqueued after the cut is not acknowledged.
func TestFailoverLosesNothingThatReplicasConfirmed(t *testing.T) {
	failover(t, "failover, link cut, 1 replica confirms", 1)
}

// failover kills masters whose replica is cut off. acks is how many replicas must have
// a task before it is acknowledged.
func failover(t *testing.T, scenario string, acks int) {
	r := begin(t, scenario)
	rounds := pick(1, 3, 100)
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	front := startRelay(t, master.Addr)
	c := r.assemble(process{
		Redis: place{Addrs: []string{front.addr}}, Lease: 500 * time.Millisecond, MaxCrashes: 1_000_000, Acks: acks,
	})
	c.mustHire()
	c.mustHire()
	ts := newTries()
	fences := r.takeLocks(c.rdb)
	var gaps []span
	c.during(ts, 4*time.Millisecond, r.mixed, func() {
		for range rounds {
			link := startRelay(t, master.Addr)
			replica := follow(t, link.addr)
			time.Sleep(time.Duration(200+r.rnd.IntN(200)) * time.Millisecond)
			gap := span{from: replicated(t, master, "probe")}
			link.point("")
			r.fault("replica cut off", 1)
			time.Sleep(time.Duration(200+r.rnd.IntN(400)) * time.Millisecond)
			gap.fault = time.Now().UnixMicro()
			master.Kill()
			r.fault("master killed", 1)
			must(t, replica.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
			gap.to = time.Now().UnixMicro()
			front.point(replica.Addr)
			gaps, master = append(gaps, gap), replica
			c.goesOn(gap, 15*time.Second)
		}
	})
	c.drain(1, time.Minute)
	c.failedOver(ts, gaps, fences(), acks)
}

// A span is a time from a moment at which replicas had everything to one at which one
// of them had taken over, µs; within it was the fault.
type span struct {
	from, fault, to int64
	hits            func(id string) bool // the tasks of that master; nil is all
}

func (s span) about(run run) bool { return s.hits == nil || s.hits(run.ID) }

func within(spans []span, at int64) bool {
	for _, s := range spans {
		if s.from <= at && at <= s.to {
			return true
		}
	}
	return false
}

// follow starts a replica, and returns when it has all that its master has.
func follow(t *testing.T, master string) *redistest.Server {
	t.Helper()
	host, port, err := net.SplitHostPort(master)
	must(t, err)
	replica := redistest.Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	rdb := replica.Client()
	eventually(t, "the replica has a link", 20*time.Second, func() bool {
		info, err := rdb.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	return replica
}

// replicated returns a time before which everything was confirmed that the replica of
// a master has. The key is one of the master's.
func replicated(t *testing.T, master *redistest.Server, key string) (at int64) {
	t.Helper()
	conn := master.Client().Conn() // WAIT is about what its own connection has written
	defer func() { _ = conn.Close() }()
	eventually(t, "the replica has what was written", 10*time.Second, func() bool {
		at = time.Now().UnixMicro()
		return conn.Set(t.Context(), key, at, 0).Err() == nil && conn.Wait(t.Context(), 1, time.Second).Val() == 1
	})
	return at
}

// goesOn waits until each of the workers runs a task that was popped after a failover.
func (c *crew) goesOn(gap span, most time.Duration) {
	c.t.Helper()
	for _, h := range c.hired {
		eventually(c.t, "every worker goes on", most, func() bool {
			return slices.ContainsFunc(h.noted(c.t), func(run run) bool { return run.Popped > gap.to && gap.about(run) })
		})
	}
}

// A taken is a lock that was taken: when, µs, and its fence.
type taken struct {
	at    int64
	fence uint64
}

// takeLocks takes a lock and gives it back, until it is asked for what it saw.
func (r *report) takeLocks(rdb redis.UniversalClient) (stop func() []taken) {
	r.t.Helper()
	locker, err := lock.New(rdb, lock.Config{})
	must(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	var all sync.WaitGroup
	var seen []taken
	all.Go(func() {
		for ctx.Err() == nil {
			lease, err := locker.TryAcquire(ctx, "chaos", 300*time.Millisecond)
			if err == nil {
				seen = append(seen, taken{time.Now().UnixMicro(), lease.Fence()})
				err = lease.Release(ctx)
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	r.t.Cleanup(cancel)
	return func() []taken {
		cancel()
		all.Wait()
		return seen
	}
}

// failedOver counts what failovers have lost, and promises that it is nothing but what
// the replica had not, and that all fences after them are higher than all before. If
// replicas had to confirm, no task may be lost.
func (c *crew) failedOver(ts *tries, gaps []span, locks []taken, acks int) {
	c.t.Helper()
	runs := c.runs()
	total := ts.count(runs, attempts)
	excused := 0
	for _, id := range total.lost {
		if acks == 0 && within(gaps, ts.at[id]) {
			excused++
		}
	}
	ends, forgotten := make(map[string]int), make(map[string]bool)
	for _, run := range runs {
		if run.Acked {
			ends[run.ID]++
			forgotten[run.ID] = forgotten[run.ID] || within(gaps, run.At)
		}
	}
	twice := 0
	for id, n := range ends {
		if n > 1 && forgotten[id] {
			twice++
		}
	}
	c.cleanBut(total, excused, twice)
	c.rising(runs, gaps...)
	c.measure("tasks lost that the replica had not", float64(excused))
	c.measure("tasks done whose end the replica had not", float64(twice))
	var waits []time.Duration
	for _, gap := range gaps {
		next := c.fencesRise(runs, gap.fault, gap.to, gap.about)
		waits = append(waits, time.Duration(next-gap.fault)*time.Microsecond)
		had := 0
		for _, l := range locks {
			if l.at > gap.to {
				had++
			}
		}
		c.promise(had > 0, "no lock was taken after a failover, so nothing was shown of that")
	}
	c.locksRise(locks)
	c.spread("master killed until a task runs", waits)
}

// fencesRise promises that all runs which were popped after a fault have higher fences
// than all before it. It returns when the first of them began.
func (r *report) fencesRise(runs []run, until, from int64, about func(run) bool) (next int64) {
	r.t.Helper()
	before, after := uint64(0), ^uint64(0)
	for _, run := range runs {
		switch {
		case run.Acked || !about(run):
		case run.Popped < until:
			before = max(before, run.Fence)
		case run.Popped > from:
			after = min(after, run.Fence)
			if next == 0 || run.At < next {
				next = run.At
			}
		}
	}
	r.promise(next > 0, "nothing ran after a fault, so nothing was shown of it")
	r.promise(before < after, "a run after a fault had fence %d, one before it %d", after, before)
	return next
}

// locksRise promises that the fences of locks rise in the order in which they were taken.
func (r *report) locksRise(locks []taken) {
	r.t.Helper()
	flat := 0
	for i := 1; i < len(locks); i++ {
		if locks[i].fence <= locks[i-1].fence {
			flat++
		}
	}
	r.promise(flat == 0, "%d locks had a fence that was no higher than that of the lock before", flat)
	r.measure("locks taken", float64(len(locks)))
}
