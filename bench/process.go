package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A workload is what one worker process has to do.
type workload struct {
	concurrency int
	pause       time.Duration // what a handler takes
}

func (w workload) String() string {
	return fmt.Sprintf("concurrency %d, handler %d ms", w.concurrency, w.pause.Milliseconds())
}

// most is how many tasks a second handlers that take time allow.
func (w workload) most() float64 {
	return float64(w.concurrency) / w.pause.Seconds()
}

// fullSpeed is the workload that shows the system alone.
var fullSpeed = workload{100, 0}

// processSuite measures how fast one worker process runs tasks that are due, and
// what that costs Redis.
func processSuite(ctx context.Context, r *rig) error {
	for _, pause := range []time.Duration{0, 5 * time.Millisecond} {
		for _, concurrency := range r.scale.pools {
			w := workload{concurrency, pause}
			sizes := newSizes(r.scale.process)
			err := r.alternate(ctx, "process", r.rounds, nil, func(ctx context.Context, t *trial) error {
				if t.enough("river") {
					return nil
				}
				return t.process(ctx, w, sizes, t.addr(), w.String())
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// sizes says how many tasks a measurement needs to last about so long, after
// what the one before has shown.
type sizes struct {
	long  time.Duration
	rates map[string]float64
}

func newSizes(long time.Duration) *sizes { return &sizes{long, make(map[string]float64)} }

const (
	fewest = 50
	utmost = 400_000

	// How many tasks a measurement has of which nothing is known.
	pilot         = 3_000
	pilotPostgres = 300 // River's default is ten times as many tasks a second as it has workers
)

func (s *sizes) of(sys system, w workload) (n int, known bool) {
	rate, known := s.rates[sys.name()]
	switch {
	case known:
		return min(max(int(rate*s.long.Seconds()), fewest), utmost), true
	case sys.kind() == onPostgres:
		n = min(10*w.concurrency, pilotPostgres)
	case w.pause > 0:
		n = min(max(int(w.most()*s.long.Seconds()/4), fewest), pilot)
	default:
		n = pilot
	}
	return n, s.long < quickly
}

// quickly is so short that a pilot will do as a measurement.
const quickly = 500 * time.Millisecond

// process measures one workload, after a pilot that says how many tasks it
// takes. The worker reaches its server by way of addr.
func (t *trial) process(ctx context.Context, w workload, sizes *sizes, addr, metric string) error {
	for {
		n, known := sizes.of(t.sys, w)
		d, err := t.drain(ctx, w, n, addr)
		if err != nil {
			return err
		}
		sizes.rates[t.sys.name()] = d.rate
		if known {
			t.record(metric, "tasks/s", d.rate)
			if t.suite == "process" && w.pause == 0 {
				t.recordCPU("process, "+metric, d.cpu)
			}
			if t.suite == "process" && w == fullSpeed {
				t.recordSpent("process, "+metric, d.spent)
			}
			return nil
		}
	}
}

// A drained is how fast a worker ran tasks, and the µs of Redis that each took: of
// its CPU, and by the clock in each command.
type drained struct {
	rate, cpu float64
	spent     map[string]float64
}

// leastSpent is what a command takes of a task, in µs, to be worth a line.
const leastSpent = 0.05

// recordSpent reports in which commands Redis spent its time, in the cpu suite.
func (t *trial) recordSpent(metric string, spent map[string]float64) {
	for _, command := range slices.Sorted(maps.Keys(spent)) {
		if spent[command] >= leastSpent {
			t.recordCPU(metric+": in "+command, spent[command])
		}
	}
}

// spent is how long Redis has been in each command; nothing for a system that is
// not on it.
func (t *trial) spent(ctx context.Context) (map[string]time.Duration, error) {
	if t.sys.kind() != onRedis {
		return nil, nil
	}
	return t.redis.spent(ctx)
}

// drain puts n due tasks into an empty server and has them run by one worker.
func (t *trial) drain(ctx context.Context, w workload, n int, addr string) (d drained, err error) {
	s, err := t.open(ctx)
	if err != nil {
		return d, err
	}
	defer closing(s, &err)
	near := s
	if addr != t.addr() {
		if near, err = t.sys.open(ctx, addr); err != nil {
			return d, err
		}
		defer closing(near, &err)
	}
	return t.drainInto(ctx, s, near, w, n)
}

// drainInto loads by one session and works by another, on a server that may
// hold other tasks. The rate counts from the start of the first handler to the
// end of the last; all must have run, and be settled, for there to be one.
func (t *trial) drainInto(ctx context.Context, s, near session, w workload, n int) (d drained, err error) {
	rest, err := s.unsettled(ctx)
	if err != nil {
		return d, err
	}
	if err := load(ctx, s, tasksOf('t', 0, n, time.Time{})); err != nil {
		return d, err
	}
	if err := settled(ctx, s, rest+n); err != nil {
		return d, err
	}
	spentBefore, err := t.spent(ctx)
	if err != nil {
		return d, err
	}
	before, err := t.cpu(ctx)
	if err != nil {
		return d, err
	}
	count := newTally(n, w.pause)
	stop, err := near.work(ctx, w.concurrency, count.handle)
	if err != nil {
		return d, err
	}
	err = count.wait(ctx, time.Minute)
	if err == nil {
		err = settled(ctx, s, rest)
	}
	after, cpuErr := t.cpu(ctx)
	spent, spentErr := t.spent(ctx)
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	if err == nil {
		err = errors.Join(cpuErr, spentErr)
	}
	if err != nil {
		return d, err
	}
	d.rate = float64(n) / count.ended.Load().Sub(count.first()).Seconds()
	d.cpu, d.spent = perTask(after-before, n), make(map[string]float64)
	for command, total := range spent {
		d.spent[command] = perTask(total-spentBefore[command], n)
	}
	return d, nil
}
