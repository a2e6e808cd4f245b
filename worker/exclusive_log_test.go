package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dulyhq/duly"
)

// How a run of an exclusive task ended.
const (
	ranOK     = "ok"
	ranFailed = "fails"  // and is to be retried
	ranCut    = "cut"    // its context ended: the lease was lost, or the worker stops
	ranDead   = "killed" // no end was written: its process was killed
	ranOn     = "on"     // no end was written though its process lived
)

// A keyedRun is one run of a task with a lock key, as its process wrote it down, or,
// without an ID, a time for which the application held the lock of that name. Times are of a clock that all processes of a machine share and nobody steps.
type keyedRun struct {
	id, key    string
	fence      uint64
	start, end time.Duration
	how        string
	killed     bool // its process, later if the run has an end
}

// monotonic reads that clock.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// exclusives are the handlers of a process that writes down its runs in a file,
// each line with one write, which a kill does not part. A task takes as long as its
// payload says.
func exclusives(logbook string) *duly.Mux {
	file, err := os.OpenFile(logbook, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	mux := duly.NewMux()
	run := func(ctx context.Context, d *duly.Delivery) error {
		if _, err := fmt.Fprintf(file, "begin %s %s %d %d\n", d.ID, d.LockKey, d.Fence, monotonic()); err != nil {
			panic(err)
		}
		how, err := toil(ctx, d)
		if _, err := fmt.Fprintf(file, "end %s %d %d %s\n", d.ID, d.Fence, monotonic(), how); err != nil {
			panic(err)
		}
		return err
	}
	mux.HandleFunc("exclusive", run)
	mux.HandleFunc("exclusive.fails", run)
	return mux
}

// toil is the work of an exclusive task; those of one kind fail at first.
func toil(ctx context.Context, d *duly.Delivery) (how string, err error) {
	takes, err := time.ParseDuration(string(d.Payload))
	if err != nil {
		return ranCut, duly.Bury(err)
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ranCut, ctx.Err()
	}
	if d.Kind == "exclusive.fails" && d.Attempt == 1 {
		return ranFailed, duly.RetryIn(20*time.Millisecond, errBoom)
	}
	return ranOK, nil
}

// A logbook is the file of one process, and when that was killed: zero if it was
// not. The kill itself is a moment later.
type logbook struct {
	file   string
	killed time.Duration
}

func (b logbook) read(t *testing.T) []keyedRun {
	t.Helper()
	text, err := os.ReadFile(b.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was killed before it began
	}
	must(t, err)
	runs, err := parseLogbook(string(text), b.killed)
	must(t, err)
	return runs
}

func parseLogbook(text string, killed time.Duration) ([]keyedRun, error) {
	var runs []keyedRun
	open := make(map[string]int) // by ID and fence
	for line := range strings.Lines(text) {
		var r keyedRun
		what := strings.Fields(line)
		switch {
		case !strings.HasSuffix(line, "\n"):
			return nil, fmt.Errorf("half a line: %q", line)
		case len(what) == 5 && what[0] == "begin":
			if _, err := fmt.Sscanf(line, "begin %s %s %d %d", &r.id, &r.key, &r.fence, &r.start); err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			r.how, r.end, r.killed = ranOn, r.start, killed > 0
			if killed > 0 {
				r.how, r.end = ranDead, max(r.start, killed)
			}
			open[fmt.Sprint(r.id, " ", r.fence)] = len(runs)
			runs = append(runs, r)
		case len(what) == 5 && what[0] == "end":
			if _, err := fmt.Sscanf(line, "end %s %d %d %s", &r.id, &r.fence, &r.end, &r.how); err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			i, there := open[fmt.Sprint(r.id, " ", r.fence)]
			if !there {
				return nil, fmt.Errorf("line %q: no run has begun", line)
			}
			runs[i].end, runs[i].how = r.end, r.how
		default:
			return nil, fmt.Errorf("line %q", line)
		}
	}
	return runs, nil
}
