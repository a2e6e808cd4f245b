package workertest

import (
	"errors"
	"sync"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// recurCases are about tasks that recur. Those that need a worker.Recurrer are
// skipped for a source that is none.
var recurCases = []testCase{
	{"a repeated task is due at its time, as if it were new", repeatAsNew},
	{"a recurring task is there once, whoever asks for it", recurOnce},
	{"a recurring task that is there keeps its due time", recurKeeps},
	{"a recurring task that has changed takes the place of the old one", recurChanged},
	{"a change loses no tick that is overdue or to be retried", recurOverdue},
	{"a recurring task that runs is changed when it ends", recurRunning},
	{"a recurring task that is dead is told, and stays so", recurDead},
	{"a recurring task that was cancelled as it ran comes back for who asks for it", recurCancelled},
	{"the progress of a repeated task goes with its run", repeatProgress},
}

func repeatAsNew(r *rig) {
	r.add(0, "a")
	r.settle(r.take("a", long), duly.Retried, 0)
	r.expire("a")
	d := r.take("a", long)
	at := d.Popped.Add(short)
	how := duly.Settlement{Delivery: d, Action: duly.Repeated, At: at, In: long, Err: errors.New("card declined")}
	if lost := r.settleAll(how); len(lost) > 0 {
		r.Fatalf("Settle reports %q as lost, which is held", idsOf(lost))
	}
	r.want(Due, "a")
	again := r.await()
	if again.ID != "a" || !again.Due.Equal(at) || again.Popped.Before(at) {
		r.Errorf("task %q came at %v, due at %v; repeated for %v", again.ID, again.Popped, again.Due, at)
	}
	if again.Attempt != 1 || again.Crashes != 0 || again.Fence <= d.Fence {
		r.Errorf("repeated: attempt %d, crashes %d, fence %d after %d", again.Attempt, again.Crashes, again.Fence, d.Fence)
	}
	r.settleLost(d, duly.Acked)
	r.idle()
}

// recur asks for a recurring task whose first tick is after in.
func (r *rig) recur(payload string, in time.Duration) (due time.Time, err error) {
	r.Helper()
	keeper, ok := r.Source.(worker.Recurrer)
	if !ok {
		r.Skip("skipped: the source is no worker.Recurrer")
	}
	task := duly.Task{ID: "a", Kind: "kind", Payload: []byte(payload), Every: "@hourly", Grace: time.Minute}
	if err := keeper.CheckTask(task); err != nil {
		r.Fatalf("CheckTask: %v", err)
	}
	return keeper.Recur(r.Context(), task, func(now time.Time) time.Time { return now.Add(in) })
}

func (r *rig) recurs(payload string, in time.Duration) (due time.Time) {
	r.Helper()
	due, err := r.recur(payload, in)
	if err != nil {
		r.Fatalf("Recur: %v", err)
	}
	return due
}

func (r *rig) wantPayload(d *duly.Delivery, payload string) {
	r.Helper()
	if d.ID != "a" || string(d.Payload) != payload || d.Attempt != 1 || d.Every != "@hourly" || d.Grace != time.Minute {
		r.Errorf("delivered %+v, want payload %q and attempt 1", d, payload)
	}
}

func recurOnce(r *rig) {
	r.recurs("1", 0)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if _, err := r.recur("1", 0); err != nil {
				r.Errorf("Recur: %v", err)
			}
		})
	}
	all.Wait()
	d := r.await()
	r.wantPayload(d, "1")
	if due := r.recurs("1", 0); !due.IsZero() {
		r.Errorf("Recur says that a task that runs is due at %v", due)
	}
	r.idle()
	r.settle(d, duly.Acked, 0)
	r.want(Missing, "a")
	r.idle()
}

func recurKeeps(r *rig) {
	due := r.recurs("1", long)
	if again := r.recurs("1", 0); !again.Equal(due) {
		r.Errorf("due at %v, and when it was asked for again at %v", due, again)
	}
	r.idle()
}

func recurChanged(r *rig) {
	r.recurs("1", long)
	r.recurs("2", 0)
	d := r.await()
	r.wantPayload(d, "2")
	r.settle(d, duly.Buried, 0)
	r.recurs("3", 0)
	r.wantPayload(r.await(), "3")
}

func recurOverdue(r *rig) {
	due := r.recurs("1", 0)
	r.Sleep(short)
	if again := r.recurs("2", long); !again.Equal(due) {
		r.Errorf("an overdue task is due at %v instead of %v", again, due)
	}
	d := r.await()
	r.wantPayload(d, "2")
	r.settle(d, duly.Retried, short)
	r.recurs("3", long)
	r.wantPayload(r.await(), "3")
}

func recurRunning(r *rig) {
	r.recurs("1", 0)
	d := r.await()
	r.recurs("2", 0)
	r.recurs("2", long) // which is there already
	r.idle()
	r.settle(d, duly.Repeated, long)
	r.wantPayload(r.await(), "2")
}

func recurDead(r *rig) {
	r.recurs("1", 0)
	r.settle(r.await(), duly.Buried, 0)
	if _, err := r.recur("1", 0); !errors.Is(err, duly.ErrDead) {
		r.Errorf("Recur of a dead task: %v, want one that matches %q", err, duly.ErrDead)
	}
	r.want(Dead, "a")
	r.idle()
}

func recurCancelled(r *rig) {
	r.recurs("1", 0)
	d := r.await()
	r.cancel("a")
	r.recurs("1", 0)
	r.settle(d, duly.Dropped, 0)
	r.wantPayload(r.await(), "1")
}

func repeatProgress(r *rig) {
	r.add(0, "a")
	d := r.take("a", long)
	r.progress(d, "1")
	if lost := r.settleAll(duly.Settlement{Delivery: d, Action: duly.Repeated, At: d.Popped.Add(long), Result: []byte("2")}); len(lost) > 0 {
		r.Errorf("Settle reports %q as lost, which is held", idsOf(lost))
	}
	r.wantReport("", "")
}
