package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A backlogger is a session that has a faster way still to store tasks that only
// lie there.
type backlogger interface {
	backlog(ctx context.Context, tasks []task) error
}

const (
	backlogAhead = 24 * time.Hour // when the tasks that only lie there are due
	backlogChunk = 100_000        // tasks made at a time
	smallBacklog = 100_000        // is made anew for every round
	peerMost     = 1_000_000      // beside which asynq is measured

	// bytesPending is what a task takes in the servers of all systems together,
	// with half as much again to spare.
	bytesPending = 1800
)

// backlogSuite measures the rates with few and with many other tasks pending,
// each system on a server of its own so that they are stored once.
func backlogSuite(ctx context.Context, r *rig) error {
	const stored = "PostgreSQL keeps them on disk, and loading them takes minutes"
	out := leaveOut{
		"asynq-tuned": "it stores and takes tasks as asynq does", "river": stored, "river-tuned": stored,
	}
	places := make(map[string]*pile)
	own := *r
	own.systems = r.without("backlog", out)
	for _, sys := range own.systems {
		server, err := startRedis(ctx)
		if err != nil {
			return err
		}
		defer server.stop()
		places[sys.name()] = &pile{server: server, sizes: newSizes(r.scale.process)}
	}
	for i, size := range r.scale.backlog {
		if free, known := freeMemory(); known && free < int64(size)*bytesPending {
			r.say("backlog leaves out %s pending: they take more than the %d MB of memory that are free", number(float64(size)), free>>20)
			continue
		}
		err := own.alternate(ctx, "backlog", r.rounds, nil, func(ctx context.Context, t *trial) error {
			if t.sys.name() == peer && size > peerMost {
				t.say("backlog leaves out asynq with %s pending: storing them takes a minute", number(float64(size)))
				return nil
			}
			p := places[t.sys.name()]
			of := *t.rig
			of.redis = p.server
			t.rig = &of
			return t.besides(ctx, p, size, r.scale.backlog[0], i == 0)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A pile is the server of one system and what has been put on it.
type pile struct {
	server *redisServer
	sizes  *sizes
	far    int // tasks that only lie there
	near   int // tasks of measurements, due in 15 minutes
}

// besides measures with about size other tasks pending.
func (t *trial) besides(ctx context.Context, p *pile, size, base int, first bool) (err error) {
	if first || size <= smallBacklog {
		if err := t.redis.clear(ctx); err != nil {
			return err
		}
		p.far = 0
	}
	s, err := t.sys.open(ctx, t.redis.addr)
	if err != nil {
		return err
	}
	defer closing(s, &err)
	if err := p.fill(ctx, s, size); err != nil {
		return err
	}
	if err := t.redis.forget(ctx); err != nil {
		return err
	}
	way := inBatches
	if !s.batches() {
		way = singly
	}
	p.near += 100_000_000 // numbers that no other measurement uses
	e, err := t.enqueueInto(ctx, s, way, p.near)
	if err != nil {
		return err
	}
	d, err := t.drainCalibrated(ctx, s, p.sizes)
	if err != nil {
		return err
	}
	t.recordBesides("enqueue in batches or from 256 callers", "tasks/s", size, base, e.rate)
	t.recordBesides("enqueue, Redis CPU a task", "µs", size, base, e.cpu)
	t.recordBesides("process, "+fullSpeed.String(), "tasks/s", size, base, d.rate)
	t.recordBesides("process, Redis CPU a task", "µs", size, base, d.cpu)
	count, longest, err := t.redis.slowest(ctx)
	at := number(float64(size)) + " pending, "
	t.record(at+"commands over 10 ms", "commands", float64(count))
	t.record(at+"longest command", "ms", longest.Seconds()*1000)
	return err
}

// recordBesides reports a measurement, and how it compares with the one beside
// the smallest backlog.
func (t *trial) recordBesides(what, unit string, size, base int, value float64) {
	metric := func(size int) string { return number(float64(size)) + " pending, " + what }
	t.record(metric(size), unit, value)
	if with, ok := t.report.find(t.suite, t.sys.name(), metric(base), t.round); ok && size != base {
		t.record(metric(size)+": ratio to "+number(float64(base)), "×", value/with)
	}
}

// drainCalibrated is drainInto beside what is there, after a pilot if need be.
func (t *trial) drainCalibrated(ctx context.Context, s session, sizes *sizes) (drained, error) {
	for {
		n, known := sizes.of(t.sys, fullSpeed)
		d, err := t.drainInto(ctx, s, s, fullSpeed, n)
		if err != nil {
			return d, err
		}
		if sizes.rates[t.sys.name()] = d.rate; known {
			return d, nil
		}
	}
}

// fill adds far tasks until there are size.
func (p *pile) fill(ctx context.Context, s session, size int) error {
	for p.far < size {
		n := min(size-p.far, backlogChunk)
		tasks := tasksOf('b', p.far, n, time.Now().Add(backlogAhead))
		var err error
		if fast, ok := s.(backlogger); ok {
			err = fast.backlog(ctx, tasks)
		} else {
			err = load(ctx, s, tasks)
		}
		if err != nil {
			return err
		}
		p.far += n
	}
	if n, err := s.unsettled(ctx); err != nil || n < size {
		return fmt.Errorf("%d tasks are pending where there should be %d: %w", n, size, err)
	}
	return nil
}

// freeMemory is how many bytes programs can still take, where the system tells.
func freeMemory() (int64, bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemAvailable:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}
