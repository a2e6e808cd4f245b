package workertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// RequireDue fails the test at once unless the task of an ID waits in the source
// and is due after in, counted from the source's now. A difference of a second
// does not matter, for time passes while a test runs; nor does whether the task is
// parked. It returns the task as it stands there.
func RequireDue(tb testing.TB, src *Source, id string, in time.Duration) Info {
	tb.Helper()
	info := get(tb, src, id)
	if info.State != Due && info.State != Parked {
		tb.Fatalf("workertest: task %q of %q is %s, want %s", id, src.Name(), info.State, Due)
	}
	if left := info.At.Sub(src.Now()); (left - in).Abs() > time.Second {
		tb.Fatalf("workertest: task %q of %q is due in %v, want %v", id, src.Name(), left, in)
	}
	return info
}

// RequireState fails the test at once unless the task of an ID stands in the
// given state: [Missing] if it was done, cancelled or never enqueued. It returns
// the task as it stands.
func RequireState(tb testing.TB, src *Source, id string, want State) Info {
	tb.Helper()
	info := get(tb, src, id)
	if info.State != want {
		tb.Fatalf("workertest: task %q of %q is %s, want %s", id, src.Name(), info.State, want)
	}
	return info
}

func get(tb testing.TB, src *Source, id string) Info {
	tb.Helper()
	info, err := src.Get(context.WithoutCancel(tb.Context()), id)
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

// RequireNone fails the test at once if a task waits or runs, and names the first
// ten. Dead ones do not count.
func RequireNone(tb testing.TB, src *Source) {
	tb.Helper()
	var there []string
	for _, state := range []State{Due, Parked, Leased} {
		infos, err := src.List(context.WithoutCancel(tb.Context()), state, 0, 10)
		if err != nil {
			tb.Fatal(err)
		}
		for _, info := range infos {
			there = append(there, fmt.Sprintf("%q (%s, %s)", info.ID, info.Kind, state))
		}
	}
	if len(there) > 0 {
		tb.Fatalf("workertest: there are tasks in %q: %s", src.Name(), strings.Join(there[:min(len(there), 10)], ", "))
	}
}
