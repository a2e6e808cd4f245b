package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/dulyhq/duly"
)

// A run is one delivery in a worker's log: a line when it begins, and one with
// its outcome when it ends. A run without an outcome was cut short by the kill.
type run struct {
	Task    string      `json:"task"`
	Fence   uint64      `json:"fence"` // with Task: which delivery
	Kind    string      `json:"kind"`
	Due     int64       `json:"due"`    // µs, by the clock of the Redis server
	Popped  int64       `json:"popped"` // µs, by the same clock
	Attempt int         `json:"attempt"`
	Crashes int         `json:"crashes"`
	Outcome duly.Action `json:"outcome,omitempty"`
}

// late is how late the run was handed out; negative if it was early.
func (r *run) late() time.Duration { return time.Duration(r.Popped-r.Due) * time.Microsecond }

// A runLog appends the runs of one worker process to a file. A line is written
// at once and whole, so that a SIGKILL loses none: a table filled in batches
// would lose just the runs that one wants to see.
type runLog struct {
	mu   sync.Mutex
	file *os.File
}

func openRunLog(path string) (*runLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) //nolint:gosec // the sale's own path
	if err != nil {
		return nil, fmt.Errorf("run log: %w", err)
	}
	return &runLog{file: file}, nil
}

func (l *runLog) close() error { return l.file.Close() }

// record is the middleware that logs. What cannot be logged is not run: the
// report is to count every run.
func (l *runLog) record(next duly.Handler) duly.Handler {
	return duly.HandlerFunc(func(ctx context.Context, d *duly.Delivery) error {
		r := run{
			Task: d.ID, Fence: d.Fence, Kind: d.Kind, Due: d.Due.UnixMicro(), Popped: d.Popped.UnixMicro(),
			Attempt: d.Attempt, Crashes: d.Crashes,
		}
		if err := l.append(r); err != nil {
			return err
		}
		err := next.HandleTask(ctx, d)
		r.Outcome, _, _ = duly.Outcome(err)
		if failed := l.append(r); failed != nil && err == nil {
			return failed
		}
		return err
	})
}

func (l *runLog) append(r run) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("run log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("run log: %w", err)
	}
	return nil
}

// readRuns reads the runs of logs, in the order in which they began. A line that
// was being written at that moment is left out, a log that is not there yet is
// empty.
func readRuns(paths ...string) ([]*run, error) {
	type delivery struct {
		task  string
		fence uint64
	}
	var runs []*run
	began := make(map[delivery]*run)
	for _, path := range paths {
		text, err := os.ReadFile(path) //nolint:gosec // the sale's own path
		if err != nil && !os.IsNotExist(err) {
			return nil, fmt.Errorf("run log: %w", err)
		}
		lines := bufio.NewScanner(bytes.NewReader(text[:bytes.LastIndexByte(text, '\n')+1]))
		for lines.Scan() {
			r := new(run)
			if err := json.Unmarshal(lines.Bytes(), r); err != nil {
				return nil, fmt.Errorf("run log %s: %w", path, err)
			}
			key := delivery{r.Task, r.Fence}
			if r.Outcome == "" {
				runs = append(runs, r)
				began[key] = r
			} else if first := began[key]; first != nil {
				first.Outcome = r.Outcome
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("run log %s: %w", path, err)
		}
	}
	return runs, nil
}
