package workertest

import (
	"fmt"
	"time"

	"github.com/dulyhq/duly"
)

var handOverCases = []testCase{
	{"settling hands a lock key over at once", settlingHandsOver},
	{"a lock key is handed over in due order", handOverInOrder},
	{"a lock key that is handed over is hinted as now", handOverHinted},
	{"a retried holder lets the next one go first", func(r *rig) { letsGo(r, duly.Retried, 0) }},
	{"a snoozed holder lets the next one go first", func(r *rig) { letsGo(r, duly.Released, time.Microsecond) }},
	{"a released holder goes first again", releasedGoesFirst},
	{"a lease that ran out hands its lock key over", crashHandsOver},
	{"a task that crashes bury hands its lock key over", burialHandsOver},
	{"a batch of settlements hands every lock key over", batchHandsOver},
}

func settlingHandsOver(r *rig) {
	for _, action := range everyAction {
		first, second := "1 "+string(action), "2 "+string(action)
		r.addKeyed(string(action), first, second)
		d := r.take(first, long)
		r.idle()
		r.settle(d, action, long)
		r.settle(r.take(second, long), duly.Acked, 0)
		r.idle()
	}
}

func handOverInOrder(r *rig) {
	r.addKeyed("key", "c", "a", "b")
	d := r.take("c", long)
	r.idle()
	r.addKeyed("key", "0")
	for _, id := range []string{"a", "b", "0"} {
		r.settle(d, duly.Acked, 0)
		d = r.take(id, long)
		r.idle()
	}
}

func handOverHinted(r *rig) {
	var held []*duly.Delivery
	for i := range 20 {
		key := fmt.Sprint("key ", i)
		r.addKeyed(key, "1 "+key, "2 "+key)
		held = append(held, r.take("1 "+key, 4*long))
		r.idle()
	}
	hints, stop := r.watchFor(func(in time.Duration) bool { return in == 0 })
	defer stop()
	r.hinted(hints, func(i int) { r.settle(held[i], duly.Acked, 0) })
}

// letsGo settles a holder to be due again later than the one that is parked.
func letsGo(r *rig, action duly.Action, in time.Duration) {
	r.addKeyed("key", "a", "b")
	d := r.take("a", long)
	r.idle()
	r.settle(d, action, in)
	r.Sleep(time.Millisecond)
	d = r.take("b", long)
	r.idle()
	r.want(Parked, "a")
	r.settle(d, duly.Acked, 0)
	r.take("a", long)
}

func releasedGoesFirst(r *rig) {
	r.addKeyed("key", "a", "b")
	d := r.take("a", long)
	r.idle()
	r.settle(d, duly.Released, 0)
	d = r.take("a", long)
	r.idle()
	r.want(Parked, "b")
	r.settle(d, duly.Acked, 0)
	r.take("b", long)
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

func burialHandsOver(r *rig) {
	r.addKeyed("key", "a", "b")
	for range r.MaxCrashes {
		r.expire("a")
	}
	if d := r.take("b", long); d.Crashes != 0 {
		r.Errorf("a task that was parked behind one that crashed has %d crashes", d.Crashes)
	}
	r.want(Dead, "a")
	r.idle()
}

func batchHandsOver(r *rig) {
	const keys = 5
	for i := range keys {
		key := fmt.Sprint("key ", i)
		r.addKeyed(key, "1 "+key, "2 "+key)
	}
	for _, round := range []string{"first", "second"} {
		ds, _ := r.pop(2*keys, long)
		if len(ds) != keys {
			r.Fatalf("the %s Pop brings %q, want one task of each lock key", round, idsOf(ds))
		}
		r.idle()
		batch := make([]duly.Settlement, keys)
		for i, d := range ds {
			batch[i] = duly.Settlement{Delivery: d, Action: duly.Acked}
		}
		if lost := r.settleAll(batch...); len(lost) > 0 {
			r.Errorf("Settle reports %q as lost, which are held", idsOf(lost))
		}
	}
	r.idle()
}
