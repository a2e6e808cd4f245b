package workertest

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// A Harness is an empty source under test and what drives it. Source, Enqueue
// and State are required and are called concurrently.
type Harness struct {
	Source worker.Source

	// Enqueue adds a task that is due after in, counted from the source's now;
	// zero is at once.
	Enqueue func(ctx context.Context, task duly.Task, in time.Duration) error

	// State tells where the task of an ID stands. One that a Pop has passed over
	// since its lock key is held is Parked.
	State func(ctx context.Context, id string) (State, error)

	// Report tells the result and the progress that are seen of the task of an ID.
	// Default: what is about them is skipped.
	Report func(ctx context.Context, id string) (result, progress []byte, err error)

	// Sleep lets at least d pass by the source's clock. Now tells the time by a
	// clock that runs as that does; what it shows does not matter. Default:
	// time.Sleep and time.Now, which also fit a source inside a bubble of
	// testing/synctest.
	Sleep func(d time.Duration)
	Now   func() time.Time

	// CancelRunning cancels the run of an ID. Without it the tests of what is
	// cancelled are skipped.
	CancelRunning func(ctx context.Context, id string) error

	// MaxCrashes is how many leases of a task in a row may run out before it is
	// dead. Default: 3.
	MaxCrashes int
}

// TestSource tests that a source does all that a worker relies on, each thing in
// a subtest named after it, with a harness of its own. A source whose clock is
// real takes it a few seconds.
func TestSource(t *testing.T, newHarness func(t *testing.T) Harness) {
	t.Helper()
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(t, newHarness(t)) })
	}
}

// A testCase is one thing that a source must do. Its name says it.
type testCase struct {
	name string
	test func(*rig)
}

func cases() []testCase {
	return slices.Concat(
		popCases, leaseCases, settleCases, cancelCases, resultCases, recurCases, watchCases, togetherCases, exclusiveCases, handOverCases,
	)
}

func (c testCase) run(tb testing.TB, h Harness) {
	tb.Helper()
	if h.Source == nil || h.Enqueue == nil || h.State == nil {
		tb.Fatal("workertest: a Harness needs Source, Enqueue and State")
	}
	if h.Sleep == nil {
		h.Sleep = time.Sleep
	}
	if h.Now == nil {
		h.Now = time.Now
	}
	h.MaxCrashes = cmp.Or(h.MaxCrashes, maxCrashes)
	c.test(&rig{tb, h})
}

// Times of the kit. A source with a real clock goes on while a test does, at
// whatever speed the machine has: what must not end during a test is long, and
// what must end is slept through.
const (
	long  = time.Hour
	short = 20 * time.Millisecond

	// patience is how long a test waits for another goroutine, in real time.
	patience = 10 * time.Second
)

// everyAction is all that settling can do.
var everyAction = []duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried, duly.Repeated}

// A rig is what a test works with.
type rig struct {
	testing.TB
	Harness
}

// add enqueues tasks, each due after in.
func (r *rig) add(in time.Duration, ids ...string) {
	r.Helper()
	for _, id := range ids {
		r.addTask(duly.Task{ID: id, Kind: "kind"}, in)
	}
}

func (r *rig) addTask(task duly.Task, in time.Duration) {
	r.Helper()
	if err := r.Enqueue(r.Context(), task, in); err != nil {
		r.Fatalf("enqueue %q: %v", task.ID, err)
	}
}

func (r *rig) pop(n int, lease time.Duration) ([]*duly.Delivery, time.Duration) {
	r.Helper()
	ds, wait, err := r.Source.Pop(r.Context(), n, lease)
	if err != nil {
		r.Fatalf("Pop: %v", err)
	}
	if wait < 0 {
		r.Fatalf("Pop reports a wait of %v", wait)
	}
	return ds, wait
}

// take pops one task, which must be the given one.
func (r *rig) take(id string, lease time.Duration) *duly.Delivery {
	r.Helper()
	ds, _ := r.pop(1, lease)
	if len(ds) != 1 || ds[0].ID != id {
		r.Fatalf("Pop(1) brings %q, want %q", idsOf(ds), id)
	}
	return ds[0]
}

// idle checks that nothing can be popped, and returns the wait.
func (r *rig) idle() time.Duration {
	r.Helper()
	ds, wait := r.pop(10, long)
	if len(ds) > 0 {
		r.Fatalf("Pop brings %q, want nothing", idsOf(ds))
	}
	return wait
}

// await pops until something comes.
func (r *rig) await() *duly.Delivery {
	r.Helper()
	for range 1000 {
		if ds, _ := r.pop(1, long); len(ds) > 0 {
			return ds[0]
		}
		r.Sleep(time.Millisecond)
	}
	r.Fatal("Pop brings nothing for a second after it was due")
	return nil
}

// expire pops one task and lets its lease run out.
func (r *rig) expire(id string) *duly.Delivery {
	r.Helper()
	d := r.take(id, short)
	r.Sleep(short + time.Millisecond)
	return d
}

// want checks where tasks stand.
func (r *rig) want(state State, ids ...string) {
	r.Helper()
	for _, id := range ids {
		got, err := r.State(r.Context(), id)
		if err != nil {
			r.Fatalf("state of %q: %v", id, err)
		}
		if got != state {
			r.Errorf("task %q is %s, want %s", id, got, state)
		}
	}
}

func (r *rig) settleAll(ss ...duly.Settlement) (lost []*duly.Delivery) {
	r.Helper()
	lost, err := r.Source.Settle(r.Context(), ss)
	if err != nil {
		r.Fatalf("Settle: %v", err)
	}
	return lost
}

// settle ends a delivery whose lease is held. A repeated one is due again after in,
// counted from when it was popped.
func (r *rig) settle(d *duly.Delivery, action duly.Action, in time.Duration) {
	r.Helper()
	if lost := r.settleAll(duly.Settlement{Delivery: d, Action: action, In: in, At: d.Popped.Add(in)}); len(lost) > 0 {
		r.Fatalf("Settle reports %q as lost, which is held", idsOf(lost))
	}
}

// settleLost tries to end a delivery whose lease is not held.
func (r *rig) settleLost(d *duly.Delivery, action duly.Action) {
	r.Helper()
	how := duly.Settlement{Delivery: d, Action: action, At: d.Popped.Add(long)}
	if lost := r.settleAll(how); !slices.Equal(lost, []*duly.Delivery{d}) {
		r.Errorf("Settle (%s) of a delivery that is not held reports %q as lost, want this very delivery", action, idsOf(lost))
	}
}

func (r *rig) extend(lease time.Duration, ds ...*duly.Delivery) (lost []*duly.Delivery) {
	r.Helper()
	lost, _, err := r.Source.Extend(r.Context(), ds, lease)
	if err != nil {
		r.Fatalf("Extend: %v", err)
	}
	return lost
}

func idsOf(ds []*duly.Delivery) []string {
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = d.ID
	}
	return ids
}
