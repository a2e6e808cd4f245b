package workertest

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/dulyhq/duly"
)

var popCases = []testCase{
	{"an empty source brings nothing and a wait", emptySource},
	{"a task is never early", neverEarly},
	{"a delivery carries its task", carriesTask},
	{"a delivery tells when its task was due", tellsDue},
	{"a task due at once is popped at once", dueAtOnce},
	{"one pop brings the earliest first", earliestFirst},
	{"one pop after another brings the earliest first", earliestNext},
	{"a pop brings no more than n", atMostN},
	{"the wait is zero if more is due", waitForMore},
	{"the wait ends with the next due time", waitForDue},
	{"the wait ends with the next lease", waitForLease},
	{"waiting as told leads to the task", waitLeads},
	{"a pop whose context has ended loses nothing", endedPop},
	{"pops that are interrupted lose nothing", interruptedPops},
}

func emptySource(r *rig) {
	if r.Source.Name() == "" {
		r.Error("the source has no name")
	}
	if wait := r.idle(); wait == 0 {
		r.Error("Pop of an empty source reports no wait: a worker would never sleep")
	}
}

func neverEarly(r *rig) {
	r.add(long, "late")
	r.idle()
	start := r.Now()
	r.add(short, "soon")
	d := r.await()
	if took := r.Now().Sub(start); took < short {
		r.Errorf("task %q came %v after it was enqueued, due after %v", d.ID, took, short)
	}
	if d.Popped.Before(d.Due) {
		r.Errorf("task %q was popped at %v, due at %v", d.ID, d.Popped, d.Due)
	}
	r.want(Due, "late")
	r.idle()
}

func carriesTask(r *rig) {
	want := duly.Task{
		ID: "order:42 é%", Kind: "order.cancel", Payload: []byte("\x00\xff{}"), LockKey: "order:42",
		Headers: map[string]string{"trace": "1"}, MaxAttempts: 7, Timeout: 3 * time.Second,
		Expires: time.UnixMicro(4e15 + 1), OnExpiry: duly.Dropped,
		Every: "CRON_TZ=Europe/Berlin 30 2 * * *", Grace: time.Hour,
	}
	r.addTask(want, 0)
	d := r.take(want.ID, long)
	if !reflect.DeepEqual(d.Task, want) {
		r.Errorf("delivered %+v, want %+v", d.Task, want)
	}
	if d.Queue != r.Source.Name() || d.Attempt != 1 || d.Crashes != 0 || d.Fence == 0 {
		r.Errorf("first delivery from %q: queue %q, attempt %d, crashes %d, fence %d", r.Source.Name(), d.Queue, d.Attempt, d.Crashes, d.Fence)
	}
}

func tellsDue(r *rig) {
	start := r.Now()
	r.add(0, "now")
	r.add(short, "soon")
	slack := r.Now().Sub(start) + time.Millisecond
	r.Sleep(2 * short) // neither is popped when it is due
	first, second := r.await(), r.await()
	apart := second.Due.Sub(first.Due)
	if apart < short-time.Millisecond || apart > short+slack {
		r.Errorf("a task due at once and one due in %v report to be due %v apart", short, apart)
	}
}

func dueAtOnce(r *rig) {
	r.add(0, "now")
	r.want(Due, "now")
	d := r.take("now", long)
	r.want(Leased, "now")
	if d.Popped.Before(d.Due) {
		r.Errorf("popped at %v, due at %v", d.Popped, d.Due)
	}
}

// shuffled adds tasks whose order by time is neither that of their IDs nor that
// in which they were added, and lets them become due.
func (r *rig) shuffled() {
	r.Helper()
	for i, id := range []string{"d", "b", "e", "a", "c"} {
		r.add(time.Duration(5-i)*short, id)
	}
	r.Sleep(5*short + time.Millisecond)
}

func (r *rig) wantOrder(ds []*duly.Delivery) {
	r.Helper()
	if len(ds) != 5 {
		r.Fatalf("popped %q, want 5 tasks", idsOf(ds))
	}
	if !slices.IsSortedFunc(ds, func(a, b *duly.Delivery) int { return a.Due.Compare(b.Due) }) {
		dues := make([]time.Time, len(ds))
		for i, d := range ds {
			dues[i] = d.Due
		}
		r.Errorf("popped %q, due at %v", idsOf(ds), dues)
	}
}

func earliestFirst(r *rig) {
	r.shuffled()
	ds, _ := r.pop(10, long)
	r.wantOrder(ds)
}

func earliestNext(r *rig) {
	r.shuffled()
	var all []*duly.Delivery
	for range 5 {
		ds, _ := r.pop(1, long)
		all = append(all, ds...)
	}
	r.wantOrder(all)
}

func atMostN(r *rig) {
	r.add(0, "a", "b", "c", "d", "e")
	for _, want := range []int{3, 2} {
		if ds, _ := r.pop(3, long); len(ds) != want {
			r.Fatalf("Pop(3) brings %q, want %d of them", idsOf(ds), want)
		}
	}
	r.idle()
}

func waitForMore(r *rig) {
	r.add(0, "a", "b")
	if ds, wait := r.pop(1, long); len(ds) != 1 || wait != 0 {
		r.Errorf("Pop(1) of two brings %q and a wait of %v, want none", idsOf(ds), wait)
	}
}

// wantWait checks a wait for something that was due in an hour at start.
func (r *rig) wantWait(wait time.Duration, start time.Time) {
	r.Helper()
	least := long - r.Now().Sub(start) - time.Second
	if wait < least || wait > long {
		r.Errorf("Pop reports a wait of %v, want %v to %v", wait, least, long)
	}
}

func waitForDue(r *rig) {
	start := r.Now()
	r.add(long, "a")
	r.add(2*long, "b")
	r.wantWait(r.idle(), start)
}

func waitForLease(r *rig) {
	r.add(0, "a")
	r.add(2*long, "b")
	start := r.Now()
	_, wait := r.pop(10, long) // whose lease it is
	r.wantWait(wait, start)
	r.wantWait(r.idle(), start)
}

// waitLeads allows for a wait that turns out too short, but not for a worker
// that pops in a hot loop.
func waitLeads(r *rig) {
	r.add(short, "a")
	for range 5 {
		ds, wait := r.pop(1, long)
		if len(ds) == 1 {
			return
		}
		if wait > short {
			r.Fatalf("Pop reports a wait of %v for a task due in %v", wait, short)
		}
		r.Sleep(wait)
	}
	r.Error("after five pops, and the waits that they reported, the task has not come")
}

func endedPop(r *rig) {
	r.add(0, "a", "b")
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	ds, _, err := r.Source.Pop(ctx, 1, long)
	if err == nil && len(ds) == 0 {
		r.Error("a Pop whose context has ended brings neither a task nor an error")
	}
	for len(ds) < 2 {
		more, _ := r.pop(1, long)
		if len(more) == 0 {
			r.Fatalf("after a Pop that failed (%v) there is %q, want both tasks", err, idsOf(ds))
		}
		ds = append(ds, more...)
	}
	if ds[0].Crashes > 0 || ds[0].Attempt > 1 {
		r.Errorf("the failed Pop counts: crashes %d, attempt %d", ds[0].Crashes, ds[0].Attempt)
	}
}

func interruptedPops(r *rig) {
	const tasks = 20
	for i := range tasks {
		r.add(0, string(rune('a'+i)))
	}
	r.popInterrupted(tasks)
}

// popInterrupted pops so many tasks with pops of which some fail, and returns which.
func (r *rig) popInterrupted(tasks int) (seen map[string]bool) {
	r.Helper()
	seen = make(map[string]bool)
	for range 200 {
		ctx, cancel := context.WithTimeout(r.Context(), rand.N(500*time.Microsecond)) //nolint:gosec // a random moment
		ds, _, err := r.Source.Pop(ctx, 2, long)
		cancel()
		if err == nil && len(ds) == 0 {
			break
		}
		r.once(seen, ds)
	}
	for len(seen) < tasks {
		ds, _ := r.pop(2, long)
		if len(ds) == 0 {
			r.Fatalf("%d of %d tasks were popped, the others wait for a lease that nobody has", len(seen), tasks)
		}
		r.once(seen, ds)
	}
	return seen
}

// once notes deliveries, none of which may have been seen.
func (r *rig) once(seen map[string]bool, ds []*duly.Delivery) {
	r.Helper()
	for _, d := range ds {
		if seen[d.ID] {
			r.Errorf("task %q was delivered twice", d.ID)
		}
		seen[d.ID] = true
	}
}
