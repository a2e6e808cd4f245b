package chaos

import (
	"flag"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

var (
	seed = flag.Uint64("seed", 0, "seed of each scenario's plan; 0: one at random")
	long = os.Getenv("CHAOS") == "long"
)

func TestMain(m *testing.M) {
	logging.Disable() // of connections that fail, as they are to
	if os.Getenv(processEnv) != "" {
		os.Exit(processMain())
	}
	flag.Parse()
	status := m.Run()
	if err := reports.table(os.Stdout); err != nil {
		status = max(status, 1)
	}
	os.Exit(status)
}

// pick is how much of something a scenario has: in its short form, by default, and
// when it may take long.
func pick[T any](inShort, byDefault, inLong T) T {
	switch {
	case testing.Short():
		return inShort
	case long:
		return inLong
	}
	return byDefault
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
