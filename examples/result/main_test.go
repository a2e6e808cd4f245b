package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheExampleShowsProgressAndResults(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"progress: 0.",
		"waited for: 300 orders, 599700 cents\n",
		`found later: done, {"orders":300,"cents":599700}` + "\n",
		"asked again: added, the one before was done\n",
		"a shop that is closed: duly: task \"report:closed:2026-10\" ended by bury: duly: bury: the shop is closed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %q but\n%s", want, &out)
		}
	}
}
