package workertest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

func keyed(id, key string) duly.Task {
	return duly.Task{ID: id, Kind: "kind", LockKey: key}
}

// take pops all that can be popped, which must be the given tasks.
func take(t *testing.T, src *workertest.Source, want ...string) []*duly.Delivery {
	t.Helper()
	ds, _, err := src.Pop(t.Context(), 100, time.Hour)
	must(t, err)
	var ids []string
	for _, d := range ds {
		ids = append(ids, d.ID)
	}
	if !slices.Equal(ids, want) {
		t.Fatalf("popped %q, want %q", ids, want)
	}
	return ds
}

// queueUp returns a source in which a runs, and b, c and d of its lock key are
// parked.
func queueUp(t *testing.T) (src *workertest.Source, end func()) {
	t.Helper()
	return queueUpIn(t, workertest.NewSource("orders"))
}

func queueUpIn(t *testing.T, src *workertest.Source) (_ *workertest.Source, end func()) {
	t.Helper()
	for _, id := range []string{"a", "b", "c", "d"} {
		add(t, src, 0, keyed(id, "key"))
		src.Advance(time.Second)
	}
	ds := take(t, src, "a")
	return src, func() {
		t.Helper()
		settle(t, src, ds[0], duly.Acked)
	}
}

func settle(t *testing.T, src *workertest.Source, d *duly.Delivery, action duly.Action) {
	t.Helper()
	lost, err := src.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: action}})
	must(t, err)
	if len(lost) > 0 {
		t.Fatal("the lease is lost")
	}
}

func TestParkedTasksAreShown(t *testing.T) {
	t.Parallel()
	src, _ := queueUp(t)
	add(t, src, time.Hour, task("later"))
	for state, want := range map[workertest.State][]string{
		workertest.Parked: {"b", "c", "d"}, workertest.Due: {"later"}, workertest.Leased: {"a"},
	} {
		infos, err := src.List(t.Context(), state, 0, 10)
		must(t, err)
		var ids []string
		for _, info := range infos {
			ids = append(ids, info.ID)
			if info.State != state {
				t.Errorf("task %q of those that are %s is shown as %s", info.ID, state, info.State)
			}
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s are %q, want %q", state, ids, want)
		}
	}
	stats, err := src.Stats(t.Context())
	must(t, err)
	if stats.Due != 4 || stats.Parked != 3 || stats.Ready != 0 || stats.Leased != 1 {
		t.Errorf("got %+v, want 4 due, of which 3 are parked and none is ready, and 1 leased", stats)
	}
}

// TestParkedTasksAreDueToWhoActsOnThem: each takes its new place.
func TestParkedTasksAreDueToWhoActsOnThem(t *testing.T) {
	t.Parallel()
	src, end := queueUp(t)
	ctx := t.Context()
	kept, err := src.Enqueue(ctx, keyed("b", "key"))
	must(t, err)
	replaced, err := src.Enqueue(ctx, keyed("b", "key"), workertest.OnConflict(workertest.Replace), workertest.In(time.Hour))
	must(t, err)
	moved, err := src.Reschedule(ctx, "c", workertest.In(0))
	must(t, err)
	cancelled, err := src.Cancel(ctx, "d")
	must(t, err)
	if kept.State != workertest.Due || replaced.State != workertest.Due || moved != workertest.Due || cancelled != workertest.Due {
		t.Errorf("found %s, %s, %s and %s, want all due", kept.State, replaced.State, moved, cancelled)
	}
	if kept.Outcome != workertest.Kept || kept.Due.IsZero() || replaced.Outcome != workertest.Replaced {
		t.Errorf("got %+v and %+v", kept, replaced)
	}
	add(t, src, 0, keyed("e", "key"))
	take(t, src)
	end()
	take(t, src, "c")
	workertest.RequireState(t, src, "e", workertest.Parked)
	workertest.RequireDue(t, src, "b", time.Hour)
	workertest.RequireState(t, src, "d", workertest.Missing)
}

// TestLockKeyIsHandedOn: to the next, if who was to have it will not come. It was due
// by then, but there was no slot for it.
func TestLockKeyIsHandedOn(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, src *workertest.Source) error{
		"cancelled": func(t *testing.T, src *workertest.Source) error {
			_, err := src.Cancel(t.Context(), "b")
			return err
		},
		"rescheduled": func(t *testing.T, src *workertest.Source) error {
			_, err := src.Reschedule(t.Context(), "b", workertest.In(time.Hour))
			return err
		},
		"replaced": func(t *testing.T, src *workertest.Source) error {
			_, err := src.Enqueue(t.Context(), keyed("b", "other"), workertest.OnConflict(workertest.Replace), workertest.In(time.Hour))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := workertest.NewSource("orders")
			add(t, src, 0, task("early"))
			early := take(t, src, "early")[0]
			src.Advance(time.Second)
			_, end := queueUpIn(t, src)
			end()
			settle(t, src, early, duly.Released)
			ds, _, err := src.Pop(t.Context(), 1, time.Hour)
			must(t, err)
			if len(ds) != 1 || ds[0].ID != "early" {
				t.Fatalf("popped %v, want the earliest", ds)
			}
			workertest.RequireState(t, src, "b", workertest.Due)
			must(t, leave(t, src))
			take(t, src, "c")
		})
	}
}

// TestReplacementTakesItsOwnLockKey: the one of the task that ran is handed over.
func TestReplacementTakesItsOwnLockKey(t *testing.T) {
	t.Parallel()
	src, end := queueUp(t)
	_, err := src.Enqueue(t.Context(), keyed("a", "other"), workertest.OnConflict(workertest.Replace))
	must(t, err)
	end()
	take(t, src, "b", "a")
}
