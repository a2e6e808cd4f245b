package workertest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly/worker/workertest"
)

func TestRequire(t *testing.T) {
	t.Parallel()
	src, away := workertest.NewSource("orders"), workertest.NewSource("away")
	away.Fail(errors.New("connection refused"))
	add(t, src, 15*time.Minute, task("a"))
	none, exclusive := workertest.NewSource("none"), workertest.NewSource("exclusive")
	add(t, exclusive, 0, keyed("first", "key"))
	take(t, exclusive, "first")
	add(t, exclusive, 0, keyed("second", "key"))
	take(t, exclusive)
	for name, c := range map[string]struct {
		check func(tb testing.TB)
		want  string // what a failure says; empty if there is to be none
	}{
		"due":                 {func(tb testing.TB) { workertest.RequireDue(tb, src, "a", 15*time.Minute) }, ""},
		"due at another time": {func(tb testing.TB) { workertest.RequireDue(tb, src, "a", time.Hour) }, "want 1h0m0s"},
		"due, missing":        {func(tb testing.TB) { workertest.RequireDue(tb, src, "b", 0) }, `task "b" of "orders" is missing, want due`},
		"due, parked":         {func(tb testing.TB) { workertest.RequireDue(tb, exclusive, "second", 0) }, ""},
		"due, leased":         {func(tb testing.TB) { workertest.RequireDue(tb, exclusive, "first", 0) }, "is leased, want due"},
		"none, parked":        {func(tb testing.TB) { workertest.RequireNone(tb, exclusive) }, `"second" (kind, parked)`},
		"missing":             {func(tb testing.TB) { workertest.RequireState(tb, src, "b", workertest.Missing) }, ""},
		"dead, due":           {func(tb testing.TB) { workertest.RequireState(tb, src, "a", workertest.Dead) }, "is due, want dead"},
		"none":                {func(tb testing.TB) { workertest.RequireNone(tb, none) }, ""},
		"none, one":           {func(tb testing.TB) { workertest.RequireNone(tb, src) }, `"a" (kind, due)`},
		"state, failing":      {func(tb testing.TB) { workertest.RequireState(tb, away, "a", workertest.Due) }, "connection refused"},
		"none, failing":       {func(tb testing.TB) { workertest.RequireNone(tb, away) }, "connection refused"},
	} {
		r := &recorder{TB: t}
		r.run(func() { c.check(r) })
		if r.failed != (c.want != "") || !strings.Contains(r.log, c.want) {
			t.Errorf("%s: failed %v: %s", name, r.failed, r.log)
		}
	}
}
