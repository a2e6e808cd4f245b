package workertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly"
)

var lockKeyCases = []testCase{
	withLockKeys("tasks of one lock key run one at a time", oneAtATime),
	withLockKeys("settling hands a lock key over at once", handOver),
	withLockKeys("a retried holder lets the next one go first", retryLetsGo),
	withLockKeys("a lock key is handed over in due order", handOverInOrder),
	withLockKeys("a lease that ran out hands its lock key over", crashHandsOver),
	withLockKeys("an extended lease keeps its lock key", extendKeepsKey),
	withLockKeys("a blocked task burns nothing", blockedBurnsNothing),
	withLockKeys("blocked tasks block no others", blockedBlockNone),
	withLockKeys("blocked tasks are waited for, not polled", blockedWait),
	withLockKeys("a lock key that is handed over is hinted", handOverHinted),
	withLockKeys("an earlier task is hinted past blocked ones", hintPastBlocked),
}

// withLockKeys is a case of its own kind: not every source knows lock keys.
func withLockKeys(name string, test func(*rig)) testCase {
	return testCase{name, func(r *rig) {
		if !r.LockKeys {
			r.Skip("skipped: the harness says that the source ignores lock keys")
		}
		test(r)
	}}
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
	r.want(Due, "b", "c")
}

func handOver(r *rig) {
	for _, action := range everyAction {
		first, second := "1 "+string(action), "2 "+string(action)
		r.addKeyed(string(action), first, second)
		d := r.take(first, long)
		r.idle()
		r.settle(d, action, long)
		r.settle(r.take(second, long), duly.Acked, 0)
	}
}

func retryLetsGo(r *rig) {
	r.addKeyed("key", "a", "b")
	r.settle(r.take("a", long), duly.Retried, 0)
	d := r.take("b", long)
	r.idle()
	r.settle(d, duly.Acked, 0)
	r.take("a", long)
}

func handOverInOrder(r *rig) {
	r.addKeyed("key", "c", "a", "b")
	for _, id := range []string{"c", "a", "b"} {
		r.settle(r.take(id, long), duly.Acked, 0)
	}
}

func crashHandsOver(r *rig) {
	r.addKeyed("key", "a", "b")
	r.expire("a")
	d := r.take("a", long) // it is the earliest still
	r.idle()
	if d.Crashes != 1 {
		r.Errorf("after a lease that ran out there are %d crashes", d.Crashes)
	}
	r.settle(d, duly.Acked, 0)
	r.take("b", long)
}

func extendKeepsKey(r *rig) {
	r.addKeyed("key", "a", "b")
	d := r.take("a", time.Second)
	if lost := r.extend(long, d); len(lost) > 0 {
		r.Skip("skipped: this machine is too slow to tell")
	}
	r.Sleep(time.Second + short)
	r.idle()
}

func blockedBurnsNothing(r *rig) {
	r.addKeyed("key", "a", "b")
	d := r.take("a", long)
	for range 3 {
		r.idle()
	}
	r.settle(d, duly.Acked, 0)
	if d = r.take("b", long); d.Attempt != 1 || d.Crashes != 0 {
		r.Errorf("a task that was blocked begins at attempt %d with %d crashes", d.Attempt, d.Crashes)
	}
}

func blockedBlockNone(r *rig) {
	r.addKeyed("key", "a", "b", "c", "d")
	r.take("a", long)
	r.addKeyed("other", "e")
	r.addKeyed("", "f", "g")
	if ds, _ := r.pop(2, long); !slices.Equal(idsOf(ds), []string{"e", "f"}) {
		r.Fatalf("behind blocked tasks Pop(2) brings %q, want e and f", idsOf(ds))
	}
	r.take("g", long)
	r.idle()
}

func blockedWait(r *rig) {
	r.addKeyed("key", "a", "b")
	start := r.Now()
	r.take("a", long)
	r.wantWait(r.idle(), start)
}

func handOverHinted(r *rig) {
	var held []*duly.Delivery
	for i := range 20 {
		key := fmt.Sprint("key ", i)
		r.addKeyed(key, "1 "+key, "2 "+key)
		held = append(held, r.take("1 "+key, 4*long))
	}
	hints, stop := r.watch()
	defer stop()
	r.hinted(hints, func(i int) { r.settle(held[i], duly.Acked, 0) })
}

func hintPastBlocked(r *rig) {
	r.addKeyed("key", "a", "b")
	r.take("a", 4*long)
	hints, stop := r.watch()
	defer stop()
	r.hinted(hints, r.earlier(2*long))
}
