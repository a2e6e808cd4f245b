package workertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly"
)

var exclusiveCases = []testCase{
	{"tasks of one lock key run one at a time", oneAtATime},
	{"a task whose lock key is held is parked", blockedIsParked},
	{"a task that is not yet due is not parked", lateIsNotParked},
	{"a parked task burns nothing", parkedBurnsNothing},
	{"parked tasks block no others", parkedBlockNone},
	{"parked tasks are waited for, not polled", parkedWait},
	{"a parked task that is enqueued again is kept once", parkedIsKeptOnce},
	{"fences rise along a lock key", fencesRiseAlongKey},
	{"an extended lease keeps its lock key", extendKeepsKey},
	{"who has lost a lease does not free its lock key", staleFreesNothing},
	{"pops that are interrupted keep lock keys apart", interruptedKeys},
	{"an earlier task is hinted past parked ones", hintPastParked},
}

// addKeyed adds tasks of one lock key that are due at once, in this order.
func (r *rig) addKeyed(key string, ids ...string) {
	r.Helper()
	for _, id := range ids {
		r.addTask(duly.Task{ID: id, Kind: "kind", LockKey: key}, 0)
		r.Sleep(time.Millisecond)
	}
}

func oneAtATime(r *rig) {
	r.addKeyed("key", "a", "b", "c")
	if ds, _ := r.pop(10, long); !slices.Equal(idsOf(ds), []string{"a"}) {
		r.Fatalf("Pop of three tasks of one lock key brings %q, want the first", idsOf(ds))
	}
	r.idle()
	r.want(Leased, "a")
}

func blockedIsParked(r *rig) {
	r.addKeyed("key", "a", "b", "c")
	d := r.take("a", long)
	r.idle()
	r.want(Parked, "b", "c")
	r.settle(d, duly.Acked, 0)
	r.take("b", long)
	r.idle()
	r.want(Leased, "b")
	r.want(Parked, "c")
}

func lateIsNotParked(r *rig) {
	r.addKeyed("key", "a")
	r.addTask(duly.Task{ID: "b", Kind: "kind", LockKey: "key"}, long)
	r.take("a", long)
	r.idle()
	r.want(Due, "b")
}

func parkedBurnsNothing(r *rig) {
	r.addKeyed("key", "a", "b")
	d := r.take("a", long)
	for range 3 {
		r.idle()
	}
	r.settle(d, duly.Acked, 0)
	if d = r.take("b", long); d.Attempt != 1 || d.Crashes != 0 {
		r.Errorf("a task that was parked begins at attempt %d with %d crashes", d.Attempt, d.Crashes)
	}
}

func parkedBlockNone(r *rig) {
	r.addKeyed("key", "a", "b", "c", "d")
	r.take("a", long)
	r.addKeyed("other", "e")
	r.addKeyed("", "f", "g")
	if ds, _ := r.pop(2, long); !slices.Equal(idsOf(ds), []string{"e", "f"}) {
		r.Fatalf("behind tasks whose lock key is held Pop(2) brings %q, want e and f", idsOf(ds))
	}
	r.take("g", long)
	r.idle()
}

func parkedWait(r *rig) {
	r.addKeyed("key", "a", "b")
	start := r.Now()
	r.take("a", long)
	r.wantWait(r.idle(), start)
	r.wantWait(r.idle(), start) // also when there is nothing left to park
}

func parkedIsKeptOnce(r *rig) {
	r.addKeyed("key", "a", "b")
	d := r.take("a", long)
	r.idle()
	r.addKeyed("key", "b")
	r.idle()
	r.settle(d, duly.Acked, 0)
	r.settle(r.take("b", long), duly.Acked, 0)
	r.idle()
	r.want(Missing, "b")
}

func fencesRiseAlongKey(r *rig) {
	r.addKeyed("key", "a", "b", "c")
	var last uint64
	for _, d := range []*duly.Delivery{r.expire("a"), nil, nil, nil} {
		if d == nil {
			d = r.await()
			r.settle(d, duly.Acked, 0)
		}
		if d.Fence <= last {
			r.Errorf("the fence of %q is %d, that of the last holder of its lock key %d", d.ID, d.Fence, last)
		}
		last = d.Fence
	}
}

func extendKeepsKey(r *rig) {
	const lease = time.Second
	r.addKeyed("key", "a", "b")
	d := r.take("a", lease)
	if lost := r.extend(long, d); len(lost) > 0 {
		r.Skip("skipped: this machine is too slow to tell")
	}
	r.Sleep(lease + short)
	r.idle()
	r.want(Parked, "b")
}

func staleFreesNothing(r *rig) {
	r.addKeyed("key", "a", "b")
	old := r.expire("a")
	d := r.take("a", long)
	for _, action := range everyAction {
		r.settleLost(old, action)
		r.idle()
	}
	r.extendLost(old, 2*minLease)
	r.Sleep(3 * minLease)
	r.idle()
	r.settle(d, duly.Acked, 0)
	r.take("b", long)
}

func interruptedKeys(r *rig) {
	const keys = 10
	for _, turn := range []string{"first", "second"} {
		for i := range keys {
			key := fmt.Sprint("key ", i)
			r.addTask(duly.Task{ID: turn + " of " + key, Kind: "kind", LockKey: key}, 0)
		}
		r.Sleep(time.Millisecond)
	}
	seen := r.popInterrupted(keys)
	r.idle()
	for i := range keys {
		if id := fmt.Sprint("first of key ", i); !seen[id] {
			r.Errorf("%q was not popped, but another of its lock key", id)
		}
	}
}

func hintPastParked(r *rig) {
	r.addKeyed("key", "a", "b")
	r.take("a", 4*long)
	r.idle()
	hints, stop := r.watch()
	defer stop()
	r.hinted(hints, r.earlier(2*long))
}
