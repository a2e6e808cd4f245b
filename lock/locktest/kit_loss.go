package locktest

import (
	"time"

	"github.com/dulyhq/duly/lock"
)

var lossCases = []testCase{
	{"a lease whose time is over says so", expiredSaysSo},
	{"an expired lease does not touch the next holder's", expiredIsHarmless},
	{"Extend tells that the lock is gone", extendTellsDropped},
	{"Extend tells that the lock is another's", extendTellsStolen},
	{"Release tells that the lock is another's", releaseTellsStolen},
	{"a loss is told to a lease that is kept alive", keptAliveIsTold},
}

func expiredSaysSo(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", short)
	r.ended(lease.Done())
	if lease.Held() || time.Now().Before(lease.Until()) {
		r.Errorf("Done is closed; held %v, %v before the end", lease.Held(), time.Until(lease.Until()))
	}
	r.want("Err", lease.Err(), lock.ErrExpired)
	r.want("Extend", lease.Extend(r.soon(), long), lock.ErrExpired)
	r.release(r.await(theirs)) // the key is gone now
	r.want("Release", lease.Release(r.soon()), lock.ErrExpired)
	r.free(theirs, "a")
}

func expiredIsHarmless(r *rig) {
	mine, theirs := r.pair()
	old := r.take(mine, "a", short)
	next := r.await(theirs)
	r.want("Extend", old.Extend(r.soon(), 2*long), lock.ErrExpired)
	r.want("Release", old.Release(r.soon()), lock.ErrLost)
	if left := r.refused(mine, "a"); left > long {
		r.Errorf("the next holder's lock of %v lasts %v", long, left)
	}
	r.release(next)
}

func extendTellsDropped(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", long)
	r.drop(mine)
	r.want("Extend", lease.Extend(r.soon(), long), lock.ErrExpired)
	r.want("Err", lease.Err(), lock.ErrExpired)
	r.ended(lease.Done())
	r.free(theirs, "a") // the extension has not brought it back
}

// steal takes a lock from its holder.
func (r *rig) steal(mine, theirs *lock.Locker) (robbed, thief *lock.Lease) {
	r.Helper()
	robbed = r.take(mine, "a", long)
	r.drop(mine)
	return robbed, r.take(theirs, "a", long)
}

func extendTellsStolen(r *rig) {
	mine, theirs := r.pair()
	robbed, thief := r.steal(mine, theirs)
	r.want("Extend", robbed.Extend(r.soon(), long), lock.ErrLost)
	r.want("Err", robbed.Err(), lock.ErrLost)
	r.ended(robbed.Done())
	r.release(thief)
}

func releaseTellsStolen(r *rig) {
	mine, theirs := r.pair()
	robbed, thief := r.steal(mine, theirs)
	r.want("Release", robbed.Release(r.soon()), lock.ErrLost)
	r.ended(robbed.Done())
	r.refused(mine, "a") // it is the thief's still
	r.release(thief)
}

func keptAliveIsTold(r *rig) {
	mine, theirs := r.pair()
	lease := r.take(mine, "a", kept)
	r.drop(mine)
	thief := r.take(theirs, "a", long)
	lease.KeepAlive()
	r.ended(lease.Done())
	r.want("Err", lease.Err(), lock.ErrLost)
	r.release(thief)
}
