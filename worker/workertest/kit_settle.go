package workertest

import (
	"errors"
	"slices"
	"time"

	"github.com/dulyhq/duly"
)

var settleCases = []testCase{
	{"an acked task is gone", func(r *rig) { goneAfter(r, duly.Acked, Missing) }},
	{"a dropped task is gone", func(r *rig) { goneAfter(r, duly.Dropped, Missing) }},
	{"a buried task is dead", func(r *rig) { goneAfter(r, duly.Buried, Dead) }},
	{"a retried task is due at once", retryAtOnce},
	{"a retried task is due after its delay", func(r *rig) { dueAfter(r, duly.Retried, 2) }},
	{"a released task keeps its due time and its place", releaseKeepsPlace},
	{"a released task is due after its delay", func(r *rig) { dueAfter(r, duly.Released, 1) }},
	{"failures alone count as attempts", attemptsCount},
	{"settling twice is lost and harmless", settleTwice},
	{"settling a batch does each as it says", settleBatch},
	{"a delivery that is twice in a batch is settled once", settleTwiceInBatch},
}

func goneAfter(r *rig, action duly.Action, state State) {
	r.add(0, "a")
	r.settle(r.take("a", short), action, 0)
	r.want(state, "a")
	r.Sleep(short + time.Millisecond) // nor does the end of its lease bring it back
	r.idle()
}

func retryAtOnce(r *rig) {
	r.add(0, "a")
	d := r.take("a", long)
	lost := r.settleAll(duly.Settlement{Delivery: d, Action: duly.Retried, Err: errors.New("card declined")})
	if len(lost) > 0 {
		r.Fatalf("Settle reports %q as lost, which is held", idsOf(lost))
	}
	r.want(Due, "a")
	if d = r.take("a", long); d.Attempt != 2 || d.Crashes != 0 {
		r.Errorf("after a retry: attempt %d, crashes %d", d.Attempt, d.Crashes)
	}
}

func dueAfter(r *rig, action duly.Action, attempt int) {
	r.add(0, "a")
	r.settle(r.take("a", long), action, long)
	r.want(Due, "a")
	r.idle()

	r.add(0, "b")
	d := r.take("b", long)
	start := r.Now()
	r.settle(d, action, short)
	again := r.await()
	if took := r.Now().Sub(start); again.ID != "b" || took < short {
		r.Errorf("task %q came %v after it was settled as %s, due after %v", again.ID, took, action, short)
	}
	if again.Attempt != attempt || !again.Due.After(d.Due) {
		r.Errorf("attempt %d, due %v; want attempt %d, due after %v", again.Attempt, again.Due, attempt, d.Due)
	}
}

func releaseKeepsPlace(r *rig) {
	r.add(0, "a")
	r.Sleep(time.Millisecond)
	r.add(0, "b")
	d := r.take("a", long)
	r.Sleep(time.Millisecond)
	r.settle(d, duly.Released, 0)
	again := r.take("a", long)
	if !again.Due.Equal(d.Due) || again.Attempt != 1 {
		r.Errorf("after a release: due %v, attempt %d; before: due %v, attempt 1", again.Due, again.Attempt, d.Due)
	}
	r.take("b", long)
}

func attemptsCount(r *rig) {
	r.add(0, "a")
	take := func(want int, after string) *duly.Delivery {
		d := r.take("a", long)
		if d.Attempt != want {
			r.Errorf("after %s: attempt %d, want %d", after, d.Attempt, want)
		}
		return d
	}
	r.settle(take(1, "enqueueing"), duly.Retried, 0)
	r.settle(take(2, "a failure"), duly.Released, 0)
	r.settle(take(2, "a release"), duly.Retried, 0)
	r.expire("a")
	r.settle(take(3, "a crash"), duly.Retried, 0)
	r.settle(take(4, "the third failure"), duly.Acked, 0)
	r.add(0, "a")
	take(1, "the task was done and enqueued again")
}

func settleTwice(r *rig) {
	after := map[duly.Action]State{
		duly.Acked: Missing, duly.Dropped: Missing, duly.Buried: Dead, duly.Retried: Due, duly.Released: Due,
		duly.Repeated: Due,
	}
	for _, action := range everyAction {
		id := string(action)
		r.add(0, id)
		d := r.take(id, long)
		r.settle(d, action, long)
		for _, second := range everyAction {
			r.settleLost(d, second)
			r.want(after[action], id)
		}
	}
	r.idle()
}

func settleBatch(r *rig) {
	r.add(0, "stale")
	old := r.expire("stale")
	r.take("stale", long)
	r.add(0, "ack", "bury", "drop", "release", "repeat", "retry")
	ds, _ := r.pop(10, long)
	if len(ds) != 6 {
		r.Fatalf("popped %q, want 6 tasks", idsOf(ds))
	}
	batch := []duly.Settlement{{Delivery: old, Action: duly.Acked}}
	for _, d := range ds {
		batch = append(batch, duly.Settlement{Delivery: d, Action: duly.Action(d.ID), In: long, At: d.Popped.Add(long)})
	}
	if lost := r.settleAll(batch...); !slices.Equal(lost, []*duly.Delivery{old}) {
		r.Errorf("Settle reports %q as lost, want the stale delivery alone", idsOf(lost))
	}
	r.want(Leased, "stale")
	r.want(Missing, "ack", "drop")
	r.want(Dead, "bury")
	r.want(Due, "release", "repeat", "retry")
	r.idle()
}

func settleTwiceInBatch(r *rig) {
	r.add(0, "a", "b")
	ds, _ := r.pop(2, long)
	if len(ds) != 2 {
		r.Fatalf("popped %q, want 2 tasks", idsOf(ds))
	}
	lost := r.settleAll(
		duly.Settlement{Delivery: ds[0], Action: duly.Acked},
		duly.Settlement{Delivery: ds[1], Action: duly.Buried},
		duly.Settlement{Delivery: ds[0], Action: duly.Buried},
		duly.Settlement{Delivery: ds[1], Action: duly.Retried},
	)
	if !slices.Equal(lost, ds) {
		r.Errorf("Settle reports %q as lost, want both tasks, once each", idsOf(lost))
	}
	r.want(Missing, ds[0].ID)
	r.want(Dead, ds[1].ID)
	r.idle()
}
