package lock_test

import (
	"testing"
	"time"

	"github.com/dulyhq/duly/lock"
)

// The nodes that were down when a lock was taken get it when they are back, with
// the fence that the others agreed on.
func TestQuorumRepairsNodesThatComeBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.warm(t)
	for _, n := range f.nodes[:2] {
		n.link.refuse.Store(true)
		n.link.deaf.Store(true)
		must(t, n.Set(t.Context(), f.cfg.Prefix+"{fence}", 1<<52, 0).Err()) // fences of their own
	}
	const ttl = 20 * time.Second
	lease := f.take(t, "a", ttl)
	for i, n := range f.nodes[:2] {
		if got := n.value(t, "a"); got != "" {
			t.Fatalf("the story is not told: node %d has %q", i, got)
		}
		n.link.heal()
		n.link.refuse.Store(false)
	}
	f.whole(t, lease)
	for i, n := range f.nodes[:2] {
		if left := n.left(t, "a"); left > time.Until(lease.Until())+100*time.Millisecond {
			t.Errorf("node %d has it for %v, the lease lasts for %v", i, left, time.Until(lease.Until()))
		}
	}
	must(t, lease.Release(soon(t)))
	f.free(t, "a")
}

func TestQuorumRepairsALostKeyAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	lease := f.take(t, "a", 3*time.Second)
	f.whole(t, lease)
	lease.KeepAlive()
	for _, n := range f.nodes[3:] {
		must(t, n.Del(t.Context(), n.key("a")).Err())
	}
	f.whole(t, lease)
	must(t, lease.Release(soon(t)))
	f.free(t, "a")
}

// What was asked of a node that hung is carried out when it goes on.
func TestQuorumRepairIsUndoneAfterTheLease(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*testing.T, *lock.Lease){
		"expired":  func(t *testing.T, lease *lock.Lease) { finished(t, lease.Done()) },
		"released": func(t *testing.T, lease *lock.Lease) { must(t, lease.Release(soon(t))) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.warm(t)
			f.nodes[0].put(t, "a", "1:other", time.Minute) // so that it is to be repaired
			h := newHold()
			h.skip = 2 // its vote, and that it cannot agree
			f.locker, _ = f.newLocker(t, h)
			lease := f.take(t, "a", 3*time.Second)
			<-h.arrived // the repair
			must(t, f.nodes[0].Del(t.Context(), f.nodes[0].key("a")).Err())
			end(t, lease)
			close(h.letGo)
			eventually(t, "it is heard", func() bool { return h.heard.Load() })
			must(t, f.nodes[0].Persist(t.Context(), f.nodes[0].key("a")).Err()) // its TTL is not to do it
			f.free(t, "a")
		})
	}
}

// A majority without the lock ends the lease. What the others have of it, just
// extended, must not outlive it.
func TestQuorumLostLeaseLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	lease := f.take(t, "a", time.Minute)
	f.whole(t, lease)
	for _, n := range f.nodes[:3] {
		must(t, n.Del(t.Context(), n.key("a")).Err())
	}
	wants(t, lease.Extend(soon(t), time.Hour), lock.ErrExpired)
	wants(t, lease.Err(), lock.ErrExpired)
	f.free(t, "a")

	next := f.take(t, "a", time.Minute)
	f.whole(t, next)
	for _, n := range f.nodes[:3] {
		n.put(t, "a", "1:other", time.Minute)
	}
	wants(t, next.Extend(soon(t), time.Hour), lock.ErrLost)
	for _, n := range f.nodes[:3] {
		must(t, n.Del(t.Context(), n.key("a")).Err())
	}
	f.free(t, "a")
}

// Fewer than a majority say that they do not have the lock, and others say nothing:
// it may still be held.
func TestQuorumDoubtDoesNotEndALease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	lease := f.take(t, "a", 10*time.Second)
	f.whole(t, lease)
	must(t, f.nodes[0].Del(t.Context(), f.nodes[0].key("a")).Err())
	f.nodes[1].link.deaf.Store(true)
	f.nodes[2].link.deaf.Store(true)
	wants(t, lease.Extend(soon(t), 10*time.Second), lock.ErrNoQuorum, lock.ErrUnknownOutcome)
	if !lease.Held() {
		t.Fatalf("it ended: %v", lease.Err())
	}
	f.nodes[1].link.heal()
	must(t, lease.Extend(soon(t), 10*time.Second))
	f.nodes[2].link.heal()
	f.whole(t, lease)
	must(t, lease.Release(soon(t)))
	f.free(t, "a")
}

// A lease that answers came too late for is none, and nothing is left of it.
func TestQuorumLateAnswersAreNoLease(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.warm(t)
	for _, n := range f.nodes[:3] {
		n.link.delay(15 * time.Millisecond)
	}
	lease, err := f.locker.TryAcquire(soon(t), "a", lock.MinTTL)
	if err == nil {
		t.Fatalf("got a lease until %v, now is %v", lease.Until(), time.Now())
	}
	f.free(t, "a")
}
