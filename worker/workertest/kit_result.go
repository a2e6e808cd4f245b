package workertest

import (
	"errors"
	"time"

	"github.com/dulyhq/duly"
)

var resultCases = []testCase{
	{"a task that asks for it is kept when it is done", keepDone},
	{"a done task is forgotten in time", forgetDone},
	{"a done task does not block a new one", doneBlocksNothing},
	{"a task that was not done is not kept", keepDoneAlone},
	{"a result is that of the settlement that ended the task", resultStands},
	{"a result of a failed attempt is not kept", resultOfFailure},
	{"the latest progress is seen", progressSeen},
	{"progress of what is not held is lost and harmless", staleProgress},
}

// addKept enqueues a task that is to be kept, and pops it.
func (r *rig) addKept(id string, retain, lease time.Duration) *duly.Delivery {
	r.Helper()
	r.addTask(duly.Task{ID: id, Kind: "kind", Retain: retain}, 0)
	return r.take(id, lease)
}

// wantReport checks what is seen of the result and the progress of the task "a".
func (r *rig) wantReport(result, progress string) {
	r.Helper()
	if r.Report == nil {
		r.Skip("skipped: the Harness has no Report")
	}
	gotResult, gotProgress, err := r.Report(r.Context(), "a")
	if err != nil {
		r.Fatalf("report: %v", err)
	}
	if string(gotResult) != result || string(gotProgress) != progress {
		r.Errorf("the task has the result %q and the progress %q, want %q and %q", gotResult, gotProgress, result, progress)
	}
}

func keepDone(r *rig) {
	d := r.addKept("a", long, short)
	r.settle(d, duly.Acked, 0)
	r.want(Done, "a")
	r.Sleep(short + time.Millisecond) // nor does the end of its lease bring it back
	r.idle()
	r.want(Done, "a")
	r.settleLost(d, duly.Acked)
}

func forgetDone(r *rig) {
	r.settle(r.addKept("a", short, long), duly.Acked, 0)
	r.Sleep(short + time.Millisecond)
	r.want(Missing, "a")
	r.idle()
}

func doneBlocksNothing(r *rig) {
	old := r.addKept("a", long, long)
	r.settle(old, duly.Acked, 0)
	r.add(0, "a")
	r.want(Due, "a")
	if d := r.take("a", long); d.Fence <= old.Fence || d.Retain != 0 {
		r.Errorf("the new task has the fence %d after %d and is kept for %v", d.Fence, old.Fence, d.Retain)
	}
}

func keepDoneAlone(r *rig) {
	after := map[duly.Action]State{duly.Dropped: Missing, duly.Buried: Dead, duly.Retried: Due, duly.Released: Due}
	for action, state := range after {
		id := string(action)
		r.settle(r.addKept(id, long, long), action, long)
		r.want(state, id)
	}
}

// result settles a delivery with a result, and reports whether it was held.
func (r *rig) result(d *duly.Delivery, action duly.Action, result string) bool {
	r.Helper()
	how := duly.Settlement{Delivery: d, Action: action, Result: []byte(result), Err: errors.New("card declined")}
	return len(r.settleAll(how)) == 0
}

func resultStands(r *rig) {
	stale := r.addKept("a", long, short)
	r.Sleep(short + time.Millisecond)
	d := r.take("a", long)
	if r.result(stale, duly.Acked, `"stale"`) || !r.result(d, duly.Acked, `"first"`) || r.result(d, duly.Acked, `"second"`) {
		r.Error("Settle takes results of those who do not hold the lease, or none of the one who does")
	}
	r.wantReport(`"first"`, "")
}

func resultOfFailure(r *rig) {
	r.result(r.addKept("a", long, long), duly.Retried, `"failed"`)
	r.wantReport("", "")
	r.settle(r.take("a", long), duly.Acked, 0)
	r.wantReport("", "")
}

func (r *rig) progress(d *duly.Delivery, progress string) {
	r.Helper()
	if err := r.Source.Progress(r.Context(), d, []byte(progress)); err != nil {
		r.Fatalf("Progress: %v", err)
	}
}

func progressSeen(r *rig) {
	d := r.addKept("a", long, long)
	r.progress(d, "1")
	r.progress(d, "2")
	r.wantReport("", "2")
	r.settle(d, duly.Retried, 0)
	r.wantReport("", "2")
	d = r.take("a", long)
	r.result(d, duly.Acked, "3")
	r.wantReport("3", "2")
	r.add(0, "a")
	r.wantReport("", "")
}

func staleProgress(r *rig) {
	r.add(0, "a")
	stale := r.expire("a")
	d := r.take("a", long)
	r.progress(d, "1")
	if err := r.Source.Progress(r.Context(), stale, []byte("2")); !errors.Is(err, duly.ErrLeaseLost) {
		r.Errorf("Progress of a delivery that is not held answers %v, want duly.ErrLeaseLost", err)
	}
	r.wantReport("", "1")
	r.settle(d, duly.Acked, 0)
	if err := r.Source.Progress(r.Context(), d, []byte("2")); !errors.Is(err, duly.ErrLeaseLost) {
		r.Errorf("Progress of a delivery that has settled answers %v, want duly.ErrLeaseLost", err)
	}
	r.wantReport("", "")
}
