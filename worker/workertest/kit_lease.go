package workertest

import (
	"slices"
	"time"

	"github.com/dulyhq/duly"
)

var leaseCases = []testCase{
	{"a lease excludes other deliveries", leaseExcludes},
	{"a lease lasts as long as was asked for", leaseLasts},
	{"a lease that ran out makes its task due again", leaseRunsOut},
	{"a task whose lease ran out keeps its place", crashKeepsPlace},
	{"crashes add up until the task settles", crashesAddUp},
	{"too many crashes bury", crashesBury},
	{"fences rise with every delivery of a task", fencesRise},
	{"extending makes a lease last longer", extendLonger},
	{"extending counts from now", extendFromNow},
	{"extending again is harmless", extendAgain},
	{"extending what ran out is lost and harmless", staleExtend},
	{"extending what has settled is lost and harmless", settledExtend},
	{"extending tells which are lost", extendMixed},
	{"settling what ran out is lost and harmless", staleSettle},
}

func leaseExcludes(r *rig) {
	r.add(0, "a")
	d := r.take("a", long)
	r.idle()
	r.want(Leased, "a")
	r.settle(d, duly.Acked, 0)
}

func leaseLasts(r *rig) {
	r.add(0, "a")
	start := r.Now()
	r.take("a", short)
	if d := r.await(); r.Now().Sub(start) < short {
		r.Errorf("task %q came again %v after it was popped, its lease lasts %v", d.ID, r.Now().Sub(start), short)
	}
}

func leaseRunsOut(r *rig) {
	r.add(0, "a")
	old := r.expire("a")
	d := r.take("a", long)
	if d.Crashes != 1 || d.Attempt != 1 || !d.Due.Equal(old.Due) || d.Fence <= old.Fence {
		r.Errorf("after a lease that ran out: crashes %d, attempt %d, due %v, fence %d; before: attempt 1, due %v, fence %d",
			d.Crashes, d.Attempt, d.Due, d.Fence, old.Due, old.Fence)
	}
}

func crashKeepsPlace(r *rig) {
	r.add(0, "a")
	r.Sleep(time.Millisecond)
	r.add(0, "b")
	r.expire("a")
	r.take("a", long)
	r.take("b", long)
}

func crashesAddUp(r *rig) {
	if r.MaxCrashes < 3 {
		r.Skip("skipped: needs a MaxCrashes of 3 or more")
	}
	r.add(0, "a")
	r.expire("a")
	r.expire("a")
	d := r.take("a", long)
	if d.Crashes != 2 {
		r.Errorf("after two leases that ran out there are %d crashes", d.Crashes)
	}
	r.settle(d, duly.Retried, 0)
	if d = r.take("a", long); d.Crashes != 0 {
		r.Errorf("after the task has settled there are %d crashes", d.Crashes)
	}
}

func crashesBury(r *rig) {
	r.add(0, "a")
	for range r.MaxCrashes {
		r.expire("a")
	}
	r.idle()
	r.want(Dead, "a")
}

func fencesRise(r *rig) {
	r.add(0, "a")
	var last uint64
	rises := func(d *duly.Delivery, after string) *duly.Delivery {
		if d.Fence <= last {
			r.Errorf("%s the fence is %d, before it was %d", after, d.Fence, last)
		}
		last = d.Fence
		return d
	}
	r.settle(rises(r.take("a", long), "at first"), duly.Retried, 0)
	r.settle(rises(r.take("a", long), "after a retry"), duly.Released, 0)
	rises(r.expire("a"), "after a release")
	r.settle(rises(r.take("a", long), "after a crash"), duly.Acked, 0)
	r.add(0, "a")
	rises(r.take("a", long), "after the task was done and enqueued again")
}

func extendLonger(r *rig) {
	const lease = time.Second
	r.add(0, "a")
	start := r.Now()
	d := r.take("a", lease)
	if lost := r.extend(long, d); len(lost) > 0 {
		if r.Now().Sub(start) >= lease {
			r.Skip("skipped: this machine is too slow to tell")
		}
		r.Fatal("Extend reports a lease as lost that is held")
	}
	r.Sleep(lease + short)
	r.idle()
	r.want(Leased, "a")
	r.settle(d, duly.Acked, 0)
}

func extendFromNow(r *rig) {
	r.add(0, "a")
	d := r.take("a", long)
	if lost := r.extend(short, d); len(lost) > 0 {
		r.Fatal("Extend reports a lease as lost that is held")
	}
	r.Sleep(short + time.Millisecond)
	r.take("a", long)
}

func extendAgain(r *rig) {
	r.add(0, "a")
	d := r.take("a", long)
	for range 3 {
		if lost := r.extend(long, d); len(lost) > 0 {
			r.Fatal("Extend, repeated, reports a lease as lost that is held")
		}
	}
	r.idle()
	r.settle(d, duly.Acked, 0)
	r.want(Missing, "a")
}

func (r *rig) extendLost(d *duly.Delivery, lease time.Duration) {
	r.Helper()
	if lost := r.extend(lease, d); !slices.Equal(lost, []*duly.Delivery{d}) {
		r.Errorf("Extend of a delivery that is not held reports %q as lost, want this very delivery", idsOf(lost))
	}
}

func staleExtend(r *rig) {
	r.add(0, "a")
	old := r.expire("a")
	d := r.take("a", long)
	r.extendLost(old, 2*minLease)
	r.Sleep(3 * minLease)
	r.idle() // the lease of the new holder has not become shorter
	r.settle(d, duly.Acked, 0)
}

func settledExtend(r *rig) {
	r.add(0, "a")
	d := r.take("a", long)
	r.settle(d, duly.Acked, 0)
	r.extendLost(d, long)
	r.want(Missing, "a")

	r.add(0, "b")
	d = r.take("b", long)
	r.settle(d, duly.Released, 0)
	r.extendLost(d, long)
	r.want(Due, "b")
	r.take("b", long)
}

func extendMixed(r *rig) {
	r.add(0, "a")
	old := r.expire("a")
	r.add(0, "b", "c")
	ds, _ := r.pop(3, long)
	if len(ds) != 3 {
		r.Fatalf("popped %q, want 3 tasks", idsOf(ds))
	}
	mixed := slices.Insert(slices.Clone(ds), 1, old)
	if lost := r.extend(long, mixed...); !slices.Equal(lost, []*duly.Delivery{old}) {
		r.Errorf("Extend reports %q as lost, want the stale delivery of %q alone", idsOf(lost), old.ID)
	}
	for _, d := range ds {
		r.settle(d, duly.Acked, 0)
	}
}

func staleSettle(r *rig) {
	for _, action := range everyAction {
		id := string(action)
		r.add(0, id)
		old := r.expire(id)
		d := r.take(id, long)
		r.settleLost(old, action)
		r.want(Leased, id)
		r.idle()
		r.settle(d, duly.Acked, 0)
		r.want(Missing, id)
	}
}
