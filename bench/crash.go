package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// childEnv tells the program that it is a worker to be killed: the name of a
// system and the address of its server, with a space between.
const childEnv = "DULY_BENCH_CHILD"

// taken is what the child prints when its handler has begun.
const taken = "taken"

// runChild takes a task and never ends.
func runChild(spec string) int {
	name, addr, _ := strings.Cut(spec, " ")
	chosen, err := choose(systems(), name, system.name)
	if err == nil {
		err = workForever(context.Background(), chosen[0], addr)
	}
	fmt.Fprintln(os.Stderr, "child:", err)
	return 1
}

func workForever(ctx context.Context, sys system, addr string) error {
	s, err := sys.open(ctx, addr)
	if err != nil {
		return err
	}
	_, err = s.work(ctx, 1, func(string) {
		fmt.Println(taken)
		select {}
	})
	if err != nil {
		return err
	}
	select {
	case <-time.After(10 * time.Minute): // nobody has come to kill it
		return errors.New("not killed")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// crashSuite measures how long the task of a worker that was killed waits until
// another worker, which is running, begins it. All systems and rounds wait side
// by side, each on a server of its own; the rounds differ in how long the other
// worker has been running.
func crashSuite(ctx context.Context, r *rig) error {
	systems := r.without("crash", leaveOut{
		"raw":         "it loses the task",
		"river-tuned": "it rescues as river does",
	})
	quick, cancel := context.WithCancel(ctx) // ends when there is nothing left to wait for but River
	defer cancel()
	var bounded, all sync.WaitGroup
	for _, sys := range systems {
		for round := 1; round <= r.rounds; round++ {
			own := *r
			t := &trial{&own, "crash", sys, round}
			if sys.kind() == onPostgres {
				if round == 1 { // rounds would share its server, and are of no use here
					all.Go(func() { t.crash(quick, r) })
				}
				continue
			}
			bounded.Go(func() { t.crash(ctx, r) })
		}
	}
	bounded.Wait()
	cancel()
	all.Wait()
	return ctx.Err()
}

// crash measures one crash. What goes wrong is a failure of r.
func (t *trial) crash(ctx context.Context, r *rig) {
	err := t.crashOnce(ctx)
	if err != nil {
		r.fail(fmt.Errorf("crash, %s, round %d: %w", t.sys.name(), t.round, err))
	}
}

func (t *trial) crashOnce(ctx context.Context) (err error) {
	lasting := context.WithoutCancel(ctx)
	if t.sys.kind() == onRedis {
		if t.redis, err = startRedis(lasting); err != nil {
			return err
		}
		defer t.redis.stop()
	}
	s, err := t.open(lasting)
	if err != nil {
		return err
	}
	defer closing(s, &err)
	if err := s.enqueue(lasting, task{id: taskID('t', 0), payload: payload}); err != nil {
		return err
	}
	child, err := t.startChild(lasting)
	if err != nil {
		return err
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	count := newTally(1, 0)
	stop, err := s.work(lasting, 1, count.handle)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := pause(ctx, time.Second+time.Duration(t.round-1)*7*time.Second); err != nil {
		return nil //nolint:nilerr // the run was interrupted, which its own loop reports
	}
	if n := len(count.done); n > 0 || count.next.Load() > 0 {
		return errors.New("the task ran elsewhere before the crash")
	}
	killed := time.Now()
	if err := child.Process.Kill(); err != nil {
		return err
	}
	t.awaitRerun(ctx, count, killed)
	return nil
}

// awaitRerun reports when the task began again, or that it did not in the time
// that there is.
func (t *trial) awaitRerun(ctx context.Context, count *tally, killed time.Time) {
	const metric, unit = "from SIGKILL to the next run", "s"
	bound := time.NewTimer(t.scale.crash)
	defer bound.Stop()
	select {
	case <-count.done:
		t.record(metric, unit, count.first().Sub(killed).Seconds())
		return
	case <-bound.C:
	case <-ctx.Done():
	}
	waited := time.Since(killed).Seconds()
	t.report.add(record{
		Suite: t.suite, System: t.sys.name(), Metric: metric, Value: waited, Unit: unit, Round: t.round, Over: true,
	})
	t.say("crash: %s has not run the task again after %.0f s", t.sys.name(), waited)
}

// startChild starts a worker process and waits until it has taken a task.
func (t *trial) startChild(ctx context.Context) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.CommandContext(ctx, self) //nolint:gosec // this program
	child.Env = append(os.Environ(), childEnv+"="+t.sys.name()+" "+t.addr())
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- strings.TrimSpace(line)
	}()
	select {
	case line := <-said:
		if line == taken {
			return child, nil
		}
		err = fmt.Errorf("the child says %q", line)
	case <-time.After(20 * time.Second):
		err = errors.New("the child has taken no task")
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	return nil, err
}
