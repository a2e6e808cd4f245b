package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A crew is a queue and the worker processes that serve it.
type crew struct {
	*report
	*queue.Queue
	others []*queue.Queue // which take their turns with it
	rdb    redis.UniversalClient

	told process // for those who are hired
	dir  string

	mu    sync.Mutex // guards what follows
	hired []*hand
}

// A hand is one worker process.
type hand struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	runs   string // file of its runs
	stderr string // file of what it logs
	ended  chan struct{}
}

// assemble makes a crew that has no workers yet. All it hires end with the test.
func (r *report) assemble(told process) *crew {
	r.t.Helper()
	q, rdb, err := told.open()
	must(r.t, err)
	others, err := told.others(rdb)
	must(r.t, err)
	c := &crew{report: r, Queue: q, others: others, rdb: rdb, told: told, dir: r.t.TempDir()}
	r.t.Cleanup(func() {
		for i, h := range c.hired {
			h.kill()
			if text, _ := os.ReadFile(h.stderr); r.t.Failed() && len(text) > 0 {
				r.t.Logf("the last of what worker %d has logged: %s", i, text[max(len(text)-1000, 0):])
			}
		}
		_ = rdb.Close()
	})
	return c
}

// hire starts a worker process, and returns when it is about to run.
func (c *crew) hire() (*hand, error) {
	c.mu.Lock()
	base := filepath.Join(c.dir, fmt.Sprint(len(c.hired)))
	h := &hand{runs: base + ".runs", stderr: base + ".log", ended: make(chan struct{})}
	c.hired = append(c.hired, h)
	c.mu.Unlock()
	told := c.told
	told.Log = h.runs
	text, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(h.stderr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	h.cmd = exec.Command(os.Args[0])
	h.cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	h.cmd.Stderr = log
	stdout, err := h.cmd.StdoutPipe()
	if err == nil {
		h.stdin, err = h.cmd.StdinPipe()
	}
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	_, err = bufio.NewReader(stdout).ReadString('\n')
	go func() {
		defer close(h.ended)
		_ = h.cmd.Wait()
	}()
	return h, err
}

// must hires a worker process, or fails the test.
func (c *crew) mustHire() *hand {
	c.t.Helper()
	h, err := c.hire()
	must(c.t, err)
	return h
}

// kill ends a process as the kernel does when memory runs out. It may have ended.
func (h *hand) kill() {
	if h.cmd != nil && h.cmd.Process != nil {
		_ = h.cmd.Process.Kill()
		<-h.ended
	}
}

// signal sends a process a signal: SIGSTOP and SIGCONT make it hang and go on.
func (h *hand) signal(sig syscall.Signal) error { return h.cmd.Process.Signal(sig) }

// stop has a process drain, and returns how long that took and its exit status.
func (h *hand) stop() (took time.Duration, status int) {
	began := time.Now()
	_ = h.stdin.Close()
	<-h.ended
	return time.Since(began), h.cmd.ProcessState.ExitCode()
}

// runs are those that all workers have noted.
func (c *crew) runs() []run {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []run
	for _, h := range c.hired {
		all = append(all, h.noted(c.t)...)
	}
	return all
}

// noted are the runs of one worker.
func (h *hand) noted(tb testing.TB) []run {
	tb.Helper()
	text, err := os.ReadFile(h.runs)
	if err != nil && !os.IsNotExist(err) {
		tb.Fatal(err)
	}
	return readRuns(tb, text)
}

// readRuns reads whole lines; the last may be under way.
func readRuns(tb testing.TB, text []byte) (all []run) {
	tb.Helper()
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for line := range bytes.Lines(text) {
		var r run
		must(tb, json.Unmarshal(line, &r))
		all = append(all, r)
	}
	return all
}

// drain hires n workers that nothing befalls, waits until nothing is left to run, and
// dismisses them.
func (c *crew) drain(n int, most time.Duration) {
	c.t.Helper()
	hands := make([]*hand, n)
	for i := range hands {
		hands[i] = c.mustHire()
	}
	c.finish(hands, most)
}

// finish waits until nothing is left to run, and dismisses workers.
func (c *crew) finish(hands []*hand, most time.Duration) {
	c.t.Helper()
	eventually(c.t, "nothing is left to run", most, func() bool { return c.pending() == 0 })
	for _, h := range hands {
		if _, status := h.stop(); status != 0 {
			text, _ := os.ReadFile(h.stderr)
			c.t.Errorf("a worker ended with status %d: %s", status, text)
		}
	}
}

// pending is how many tasks are to be run; -1 if Redis does not tell.
func (c *crew) pending() (n int) {
	for i := range 1 + len(c.others) {
		s, err := c.turn(i).Stats(c.t.Context())
		if err != nil {
			return -1
		}
		n += s.Due + s.Parked + s.Leased
	}
	return n
}

// turn is the queue whose turn it is.
func (c *crew) turn(i int) *queue.Queue {
	if i %= 1 + len(c.others); i > 0 {
		return c.others[i-1]
	}
	return c.Queue
}

// enqueue enqueues n tasks at a pace, each in a call of its own; task makes the i-th.
func (c *crew) enqueue(ts *tries, n int, pace time.Duration, task func(i int) (duly.Task, []queue.EnqueueOption)) {
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	limit := make(chan struct{}, 64)
	for i := range n {
		limit <- struct{}{}
		calls.Go(func() {
			defer func() { <-limit }()
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			next, opts := task(i)
			_, err := c.turn(i).Enqueue(ctx, next, opts...)
			ts.note(next.ID, err)
		})
		<-tick.C
	}
}

// mixed makes tasks that are due at once or within two seconds, of which some fail at
// first.
func (r *report) mixed(i int) (duly.Task, []queue.EnqueueOption) {
	r.mu.Lock()
	defer r.mu.Unlock()
	task, in := duly.Task{ID: fmt.Sprintf("task-%06d", i), Kind: "quick"}, time.Duration(0)
	if r.rnd.IntN(10) == 0 {
		task.ID, task.Kind = fmt.Sprintf("fails-%06d", i), "fails"
	}
	if r.rnd.IntN(5) == 0 {
		in = time.Duration(r.rnd.Int64N(int64(2 * time.Second)))
	}
	return task, []queue.EnqueueOption{queue.In(in)}
}

// attempts are the runs that a mixed task is to have.
func attempts(id string) int {
	if id[0] == 'f' {
		return 2
	}
	return 1
}

// eventually waits until something holds.
func eventually(tb testing.TB, what string, most time.Duration, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(most); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not in %v: %s", most, what)
		}
	}
}
