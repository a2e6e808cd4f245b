package chaos

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// The clock of the server is stepped under load. It is the one that counts: no task is
// popped before it is due by that, and none long after.
func TestClockStepsOfTheServer(t *testing.T) {
	r := begin(t, "clock of the server stepped")
	rounds, between := pick(1, 2, 100), pick(500*time.Millisecond, 2*time.Second, 2*time.Second)
	clock := r.startClock()
	c := r.assemble(process{Redis: place{Socket: clock.server.Socket}, Lease: time.Second, MaxCrashes: 1_000_000})
	c.mustHire()
	c.mustHire()
	ts := newTries()
	locks := r.takeLocks(c.rdb)
	c.during(ts, 6*time.Millisecond, r.varied, func() {
		for range rounds {
			steps := []time.Duration{30 * time.Second, -30 * time.Second, time.Hour, -time.Hour}
			r.rnd.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
			for _, by := range steps {
				time.Sleep(between)
				clock.step(by)
			}
		}
		time.Sleep(between)
		clock.step(clock.highest - clock.offset) // so that all come due which were enqueued then
		time.Sleep(between)
		if !testing.Short() {
			clock.step(-30 * time.Second) // of which nothing is made up
		}
		time.Sleep(between)
	})
	c.drain(1, time.Minute)

	runs := c.runs()
	for i := range runs {
		runs[i].At = max(runs[i].At, runs[i].Popped) // clients have a clock of their own
	}
	total := ts.count(runs, attempts)
	r.clean(total)
	r.promise(total.Acked == total.Attempts, "%d of %d tasks were acknowledged, and Redis was there all the time", total.Acked, total.Attempts)
	runs = clock.real(c.runs())
	r.rising(runs)
	r.locksRise(locks())
	for _, s := range clock.steps[1:] {
		r.fencesRise(runs, s.before, s.at, func(run) bool { return true })
	}
	clock.punctual(ts, runs)
}

// varied makes mixed tasks, and in ten one that takes 50 to 300 ms.
func (r *report) varied(i int) (duly.Task, []queue.EnqueueOption) {
	task, opts := r.mixed(i)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rnd.IntN(10) == 0 {
		takes := time.Duration(50+r.rnd.IntN(250)) * time.Millisecond
		task = duly.Task{ID: fmt.Sprintf("ignores-%06d", i), Kind: "ignores", Payload: []byte(takes.String())}
	}
	return task, opts
}

// A serverClock is the clock of a server, which is off by what a file says.
type serverClock struct {
	*report
	server          *redistest.Server
	file            *os.File
	offset, highest time.Duration
	steps           []clockStep // the first is the beginning
}

// A clockStep is when the clock was stepped, µs, and by what it is off since then.
type clockStep struct{ before, at, offset int64 }

// startClock starts a server, and sees that its clock can be stepped.
func (r *report) startClock() *serverClock {
	r.t.Helper()
	file, err := os.Create(filepath.Join(r.t.TempDir(), "offset"))
	must(r.t, err)
	r.t.Cleanup(func() { _ = file.Close() })
	c := &serverClock{report: r, file: file}
	c.set(0)
	preload(r.t, "clock.c")
	r.t.Setenv("CLOCK_OFFSET", file.Name())
	c.server = redistest.Start(r.t)
	must(r.t, os.Unsetenv("LD_PRELOAD"))
	c.step(0)
	return c
}

func (c *serverClock) set(offset time.Duration) {
	c.t.Helper()
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(offset.Microseconds())), 0)
	must(c.t, err)
}

// step steps the clock, and looks whether the server's has been.
func (c *serverClock) step(by time.Duration) {
	c.t.Helper()
	s := clockStep{before: time.Now().UnixMicro()}
	c.offset += by
	c.highest = max(c.highest, c.offset)
	c.set(c.offset)
	s.at, s.offset = time.Now().UnixMicro(), c.offset.Microseconds()
	c.steps = append(c.steps, s)
	now := c.now(c.server.Client())
	if off := time.Until(now) - c.offset; off.Abs() > 5*time.Second {
		c.t.Fatalf("the server's clock was stepped by %v, and is off by %v more", by, off)
	}
	if by != 0 {
		c.fault(map[bool]string{true: "clock put on", false: "clock put back"}[by > 0], 1)
	}
}

func (c *serverClock) now(rdb *redis.Client) time.Time {
	c.t.Helper()
	now, err := rdb.Time(context.Background()).Result()
	must(c.t, err)
	return now
}

// real are runs with Popped by the clock that was not stepped: the offset was that by
// which it comes closest to when the run began.
func (c *serverClock) real(runs []run) []run {
	for i := range runs {
		popped := int64(math.MinInt64 / 2)
		for _, s := range c.steps {
			if at := runs[i].Popped - s.offset; abs(runs[i].At-at) < abs(runs[i].At-popped) {
				popped = at
			}
		}
		runs[i].Popped = popped
	}
	return runs
}

func abs(us int64) int64 { return max(us, -us) }

// runnable is when a task came due, by the clock that was not stepped.
func (c *serverClock) runnable(enqueued, due int64) int64 {
	for i, s := range c.steps {
		at := max(s.at, enqueued, due-s.offset)
		if i == len(c.steps)-1 || at < c.steps[i+1].at {
			return at
		}
	}
	return 0
}

// punctual promises that tasks are first popped when they come due by the server's
// clock: a step on makes them early by what it is, one back late by no more.
func (c *serverClock) punctual(ts *tries, runs []run) {
	c.t.Helper()
	const slack = 3 * time.Second // the lease, by which workers look again, and what a busy machine takes
	early, late, most := 0, 0, time.Duration(0)
	waits := make([]time.Duration, 0, len(ts.at))
	for id, rs := range begun(runs) {
		runnable := c.runnable(ts.at[id], rs[0].Due)
		wait := time.Duration(rs[0].Popped-runnable) * time.Microsecond
		if wait > slack {
			late++
		}
		// What is popped before its caller has the answer was enqueued before.
		if rs[0].Popped < c.runnable(min(ts.at[id], rs[0].Popped), rs[0].Due)-100_000 {
			early++
		}
		waits = append(waits, max(wait, 0))
		most = max(most, time.Duration(rs[0].Popped-ts.at[id])*time.Microsecond)
	}
	c.promise(early == 0, "%d tasks were popped before the server's clock said that they were due", early)
	c.promise(late == 0, "%d tasks were popped %v after the server's clock said that they were due", late, slack)
	c.spread("due by the server's clock until popped", waits)
	c.measure("longest from enqueued to popped, s", most.Seconds())
}
