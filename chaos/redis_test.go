package chaos

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// inMemory has the files of servers in memory, where there is such a file system.
// While a disk is busy syncing, Redis under appendfsync everysec answers before it
// has written, for up to 2 s; how long a disk takes is then what a scenario shows.
func inMemory(t *testing.T) {
	t.Helper()
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err == nil {
		t.Setenv("TMPDIR", memory)
	}
}

// Redis is killed at random instants and started again, while tasks come in and
// workers run, which go on by themselves.
func TestKilledRedisLosesNothing(t *testing.T) {
	r := begin(t, "redis killed")
	inMemory(t)
	kills := pick(4, 25, 500)
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	c := r.assemble(process{Redis: place{Socket: server.Socket}, Slots: 4, Lease: time.Second, MaxCrashes: 1_000_000})
	hands := []*hand{c.mustHire(), c.mustHire(), c.mustHire()}
	ts := newTries()
	stop := c.pour(ts, 2*time.Millisecond, r.mixed)
	slowest := time.Duration(0)
	for i := range kills {
		c.awaitRun(10 * time.Second)
		time.Sleep(time.Duration(r.roll(600)) * time.Millisecond)
		server.Kill()
		r.fault("redis kill", 1)
		away := time.Duration(r.roll(800)) * time.Millisecond
		if i == 0 {
			away = 1200 * time.Millisecond // longer than a client goes on dialling: calls are refused
		}
		time.Sleep(away)
		server.Restart()
		slowest = max(slowest, c.awaitRun(10*time.Second))
	}
	tasks := stop()
	c.finish(hands, time.Minute)

	total := ts.count(c.runs(), attempts)
	r.clean(total)
	r.promise(total.Attempts == tasks, "%d tasks were tried, and %d have an answer", tasks, total.Attempts)
	r.promise(total.Acked > tasks/10, "only %d of %d tasks were acknowledged", total.Acked, tasks)
	r.promise(total.Refused > 0, "no task was refused, though Redis was away")
	r.measure("unknown outcomes, tasks", float64(total.Unknown))
	r.measure("refused, tasks", float64(total.Refused))
	r.measure("slowest to go on, ms", float64(slowest.Milliseconds()))
}

// pour enqueues tasks at a pace until it is stopped, and then returns how many.
func (c *crew) pour(ts *tries, pace time.Duration, task func(i int) (duly.Task, []queue.EnqueueOption)) (stop func() int) {
	var load sync.WaitGroup
	ended := make(chan struct{})
	n := 0
	load.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
			}
			c.enqueue(ts, 50, pace, func(i int) (duly.Task, []queue.EnqueueOption) { return task(n + i) })
			n += 50
		}
	})
	stopped := sync.OnceFunc(func() {
		close(ended)
		load.Wait()
	})
	c.t.Cleanup(stopped)
	return func() int {
		stopped()
		return n
	}
}

// roll is a number of the plan under n.
func (r *report) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rnd.IntN(n)
}

// awaitRun waits until workers have begun or ended another run, and returns how long
// that took.
func (c *crew) awaitRun(most time.Duration) time.Duration {
	c.t.Helper()
	began, before := time.Now(), c.noted()
	eventually(c.t, "workers go on", most, func() bool { return c.noted() > before })
	return time.Since(began)
}

// noted is the size of what workers have noted.
func (c *crew) noted() (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hired {
		if info, err := os.Stat(h.runs); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// said are the lines that workers have logged, but those of attempts that were to fail.
func (c *crew) said() (lines []string) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hired {
		text, err := os.ReadFile(h.stderr)
		must(c.t, err)
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "the first attempt fails") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}
