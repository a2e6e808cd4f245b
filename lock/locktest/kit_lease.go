package locktest

import (
	"context"
	"time"

	"github.com/dulyhq/duly/lock"
)

var leaseCases = []testCase{
	{"releasing frees the lock and ends the lease", releaseFrees},
	{"releasing again is harmless", releaseAgain},
	{"a release is sent though its context has ended", releaseOutlives},
	{"extending makes a lease last longer", extendLonger},
	{"extending never makes a lease shorter", extendNeverShortens},
	{"extending changes neither token nor fence", extendKeeps},
	{"a lease that is kept alive outlasts its TTL", keptAlive},
	{"ReleaseAll releases what its locker holds", releaseAll},
}

func releaseFrees(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", long)
	r.release(lease)
	r.ended(lease.Done())
	r.want("Err of a released lease", lease.Err(), lock.ErrReleased)
	r.want("Extend of a released lease", lease.Extend(r.soon(), long), lock.ErrReleased)
	if lease.Held() {
		r.Error("a released lease is held")
	}
	r.free(theirs, "a")
}

func releaseAgain(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", long)
	r.release(lease)
	r.release(lease)
	next := r.take(theirs, "a", long)
	r.release(lease)
	r.refused(mine, "a") // it is the next holder's still
	r.release(next)
}

func releaseOutlives(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", long)
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	if err := lease.Release(ctx); err != nil {
		r.Errorf("Release in an ended context: %v", err)
	}
	r.free(theirs, "a")
}

func extendLonger(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", kept)
	first := lease.Until()
	if err := lease.Extend(r.soon(), long); err != nil {
		if !time.Now().Before(first) {
			r.Skip("skipped: this machine is too slow to tell")
		}
		r.Fatalf("Extend of a lease that is held: %v", err)
	}
	if left := time.Until(lease.Until()); left < long/2 || left > long {
		r.Errorf("extended for %v, it lasts %v", long, left)
	}
	time.Sleep(time.Until(first) + kept/10) // the key of the first TTL would be gone
	if left := r.refused(theirs, "a"); left < long/2 {
		r.Errorf("extended for %v, the lock lasts %v", long, left)
	}
	r.release(lease)
}

func extendNeverShortens(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", long)
	until := lease.Until()
	if err := lease.Extend(r.soon(), short); err != nil {
		r.Fatalf("Extend of a lease that is held: %v", err)
	}
	if lease.Until().Before(until) {
		r.Errorf("an extension made the lease end %v sooner", until.Sub(lease.Until()))
	}
	if left := r.refused(theirs, "a"); left < long/2 {
		r.Errorf("an extension left a lock of %v for %v", long, left)
	}
	r.release(lease)
}

func extendKeeps(r *rig) {
	lease := r.take(r.open(), "a", long)
	token, fence := lease.Token(), lease.Fence()
	for range 3 {
		if err := lease.Extend(r.soon(), long); err != nil {
			r.Fatalf("Extend of a lease that is held: %v", err)
		}
	}
	if lease.Token() != token || lease.Fence() != fence {
		r.Errorf("token %q and fence %d became %q and %d", token, fence, lease.Token(), lease.Fence())
	}
	r.release(lease)
}

func keptAlive(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", kept)
	lease.KeepAlive()
	lease.KeepAlive() // once is enough, and twice no harm
	time.Sleep(kept * 3 / 2)
	if !lease.Held() {
		r.Fatalf("it ended: %v", lease.Err())
	}
	r.refused(theirs, "a")
	r.release(lease)
	r.free(theirs, "a")
}

func releaseAll(r *rig) {
	mine, theirs := r.pair()
	var leases []*lock.Lease
	for _, n := range []string{"a", "b", "c"} {
		leases = append(leases, r.take(mine, n, long))
	}
	r.release(leases[0])
	others := r.take(theirs, "d", long)
	if err := mine.ReleaseAll(r.soon()); err != nil {
		r.Fatalf("ReleaseAll of leases that are held: %v", err)
	}
	for _, lease := range leases {
		r.want("Err after ReleaseAll", lease.Err(), lock.ErrReleased)
	}
	r.free(theirs, "b")
	r.free(theirs, "c")
	if !others.Held() {
		r.Error("ReleaseAll ended the lease of another locker")
	}
	r.refused(mine, "d")
	if err := mine.ReleaseAll(r.soon()); err != nil {
		r.Errorf("ReleaseAll of nothing: %v", err)
	}
}
