package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// A crew is the worker processes of a sale.
type crew struct {
	hands []*hand
	lost  func(error) // told when a worker ends that was not told to
}

// A hand is one worker process.
type hand struct {
	name    string
	log     string
	cmd     *exec.Cmd
	stdin   io.Closer // its life line: the process ends when this is closed
	leaving atomic.Bool
	killed  atomic.Bool
	ended   chan struct{}
}

// hire starts n workers and waits until all are ready. Their run logs go into
// dir. A crew that is returned with an error is to be dismissed as well.
func hire(ctx context.Context, n int, a assignment, dir string, stderr io.Writer, lost func(error)) (*crew, error) {
	c := &crew{lost: lost}
	self, err := os.Executable()
	if err != nil {
		return c, fmt.Errorf("start the workers: %w", err)
	}
	var ready []<-chan error
	for i := range n {
		h := &hand{name: fmt.Sprintf("worker %d", i+1), ended: make(chan struct{})}
		h.log = filepath.Join(dir, fmt.Sprintf("runs-%d.jsonl", i+1))
		a.Log = h.log
		h.cmd = exec.Command(self, workerCommand) //nolint:gosec // this program
		h.cmd.Stderr = stderr
		up, err := c.start(h, a)
		if err != nil {
			return c, fmt.Errorf("start %s: %w", h.name, err)
		}
		ready = append(ready, up)
	}
	for i, up := range ready {
		select {
		case err = <-up:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return c, fmt.Errorf("start %s: %w", c.hands[i].name, err)
		}
	}
	return c, nil
}

// start starts a worker; what it returns tells when it is ready.
func (c *crew) start(h *hand, a assignment) (<-chan error, error) {
	stdin, err := h.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	h.stdin = stdin
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	c.hands = append(c.hands, h)
	up := make(chan error, 1)
	go func() {
		defer close(h.ended)
		err := json.NewEncoder(stdin).Encode(a)
		if err == nil {
			_, err = bufio.NewReader(stdout).ReadString('\n')
		}
		up <- err
		if err := h.cmd.Wait(); !h.leaving.Load() {
			c.lost(fmt.Errorf("%s ended by itself: %w", h.name, cmp.Or(err, errExit0)))
		}
	}()
	return up, nil
}

// errExit0 names an end that is no error of its own.
var errExit0 = errors.New("exit status 0")

// kill sends SIGKILL to the first n workers, each at a moment when it is in the
// middle of runs: a kill that hits nobody at work shows nothing. It gives up when ctx
// ends.
func (c *crew) kill(ctx context.Context, n int) error {
	for _, h := range c.hands[:n] {
		if caught, err := h.catch(ctx); !caught || err != nil {
			return err
		}
		h.leaving.Store(true)
		if err := h.cmd.Process.Kill(); err != nil {
			return fmt.Errorf("kill %s: %w", h.name, err)
		}
		h.killed.Store(true)
	}
	return nil
}

// catch stops a worker in the middle of runs, and reports whether it could before ctx
// ended. It looks again when the worker stands still: the run may have ended between.
func (h *hand) catch(ctx context.Context) (caught bool, err error) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	frozen := false
	for {
		busy, err := h.busy()
		switch {
		case err != nil || busy && frozen:
			return busy, err
		case busy:
			err = freeze(h.cmd.Process)
		case frozen:
			err = thaw(h.cmd.Process)
		}
		if err != nil {
			return false, fmt.Errorf("stop %s: %w", h.name, err)
		}
		frozen = busy
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if frozen {
				err = thaw(h.cmd.Process)
			}
			return false, err
		}
	}
}

// busy reports whether a run is under way that others would have to repeat. A
// reminder does not count, for it may be too late to run it again.
func (h *hand) busy() (bool, error) {
	runs, err := readRuns(h.log)
	return slices.ContainsFunc(runs, func(r *run) bool {
		return r.Outcome == "" && (r.Kind == shipOrder.Name || r.Kind == cancelOrder.Name)
	}), err
}

// killed counts the workers that were.
func (c *crew) killed() int {
	n := 0
	for _, h := range c.hands {
		if h.killed.Load() {
			n++
		}
	}
	return n
}

// logs are the paths of the workers' run logs.
func (c *crew) logs() []string {
	paths := make([]string, len(c.hands))
	for i, h := range c.hands {
		paths[i] = h.log
	}
	return paths
}

// dismiss ends all workers, by force if one takes longer than it says it does.
// It may be called again.
func (c *crew) dismiss() {
	for _, h := range c.hands {
		h.leaving.Store(true)
		_ = h.stdin.Close()
	}
	patience := time.NewTimer(drainTimeout + cancelTimeout + 2*time.Second)
	defer patience.Stop()
	for _, h := range c.hands {
		select {
		case <-h.ended:
			continue
		case <-patience.C:
			patience.Reset(0)
		}
		_ = h.cmd.Process.Kill()
		<-h.ended
	}
}
