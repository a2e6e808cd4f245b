package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
)

// A troupe is the worker processes of one scene, and what they wrote down.
type troupe struct {
	*scene
	dir string

	mu    sync.Mutex // guards what follows
	books []logbook
}

func newTroupe(t *testing.T, p process) *troupe {
	t.Helper()
	return &troupe{scene: newScene(t, p), dir: t.TempDir()}
}

// hire starts a process with a logbook of its own. What it returns ends it.
func (tr *troupe) hire(t *testing.T) (kill, stop func()) {
	t.Helper()
	tr.mu.Lock()
	i := len(tr.books)
	tr.books = append(tr.books, logbook{file: filepath.Join(tr.dir, fmt.Sprint(i))})
	p := tr.process
	p.Logbook = tr.books[i].file
	tr.mu.Unlock()
	c := p.spawn(t)
	kill = func() {
		tr.mu.Lock()
		tr.books[i].killed = monotonic()
		tr.mu.Unlock()
		c.kill()
	}
	return kill, func() { c.stop(t) }
}

// finish has n more processes do what is left, and reads what all wrote down.
func (tr *troupe) finish(t *testing.T, n int, most time.Duration) (runs []keyedRun) {
	t.Helper()
	for range n {
		_, stop := tr.hire(t)
		defer stop()
	}
	eventually(t, "all tasks are done", most, func() bool { return tr.empty(t) })
	for _, book := range tr.books {
		runs = append(runs, book.read(t)...)
	}
	return runs
}

// hold has the application take the lock of a key for a moment.
func (tr *troupe) hold(t *testing.T, key string) (r keyedRun) {
	t.Helper()
	err := tr.Locker().Do(t.Context(), key, tr.Lease, func(ctx context.Context, l *lock.Lease) error {
		r = keyedRun{key: key, fence: l.Fence(), start: monotonic(), how: ranOK}
		time.Sleep(3 * ms)
		if r.end = monotonic(); ctx.Err() != nil {
			r.how = ranCut
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return r
}

// judge fails the test for what is wrong with the runs, and for what is left.
func (tr *troupe) judge(t *testing.T, tasks []keyedTask, runs []keyedRun) {
	t.Helper()
	wrong := judge(tasks, runs)
	for _, text := range wrong[:min(len(wrong), 20)] {
		t.Error(text)
	}
	if len(wrong) > 20 {
		t.Errorf("and %d more", len(wrong)-20)
	}
	stats, err := tr.Stats(t.Context())
	must(t, err)
	if stats.Dead != 0 || int(stats.Counters["ack"]) != len(tasks) {
		t.Errorf("%d tasks were acked of %d, %d are dead", stats.Counters["ack"], len(tasks), stats.Dead)
	}
}

// enqueueKeyed adds tasks at their due times, many at once and in no order. None is
// run before all are there, and those that come late are due when they come.
func (s *scene) enqueueKeyed(t *testing.T, tasks []keyedTask, task func(i int) duly.Task) {
	t.Helper()
	must(t, s.Pause(t.Context()))
	var all sync.WaitGroup
	for share := range slices.Chunk(rand.Perm(len(tasks)), len(tasks)/32+1) {
		all.Go(func() {
			for _, i := range share {
				next := task(i)
				next.ID, next.LockKey = tasks[i].id, tasks[i].key
				receipt, err := s.Enqueue(t.Context(), next, queue.At(tasks[i].due))
				if err != nil {
					t.Error(err)
				}
				tasks[i].due = receipt.Due
			}
		})
	}
	all.Wait()
	must(t, s.Resume(t.Context()))
}

// bursts plans tasks of which each key has a few at a time, so that they wait for
// one another, and none due together.
func bursts(rnd *rand.Rand, keys, each, burst int, from time.Time, span time.Duration) (tasks []keyedTask) {
	names := rnd.Perm(keys * each) // whose order is not that of the due times
	for key := range keys {
		taken := make(map[time.Time]bool)
		var due time.Time
		for i := range each {
			if due = due.Add(time.Duration(rnd.IntN(1000)) * time.Microsecond); i%burst == 0 {
				due = from.Add(time.Duration(rnd.Int64N(int64(span)))).Truncate(time.Microsecond)
			}
			for taken[due] {
				due = due.Add(time.Microsecond)
			}
			taken[due] = true
			tasks = append(tasks, keyedTask{fmt.Sprintf("task-%05d", names[len(tasks)]), fmt.Sprintf("key-%03d", key), due})
		}
	}
	return tasks
}

// Workers are killed at random, and some are stopped, while those started in
// their place go on, and the application takes the same locks. Runs of one lock key
// never overlap and come in due order, a task that was cut off first of all; their
// fences rise; and nothing is lost.
func TestLockKeysKeepRunsApartWhenWorkersAreKilledAtRandom(t *testing.T) {
	t.Parallel()
	keys, each, span := 200, 20, 8*time.Second
	if testing.Short() {
		keys, each, span = 40, 10, 2*time.Second
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	tr := newTroupe(t, process{Slots: 4, Lease: time.Second, MaxCrashes: 1_000_000})
	began := time.Now()
	tasks := bursts(rnd, keys, each, 5, began.Add(time.Second), span)
	tr.enqueueKeyed(t, tasks, mixedTask)
	var busy sync.WaitGroup
	var held []keyedRun
	busy.Go(func() {
		rnd := rand.New(rand.NewPCG(seed, 9))
		for time.Since(began) < time.Second+span {
			held = append(held, tr.hold(t, tasks[rnd.IntN(len(tasks))].key))
		}
	})
	for i := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 1+i))
		busy.Go(func() {
			for time.Since(began) < time.Second+span {
				kill, stop := tr.hire(t)
				time.Sleep(100*ms + time.Duration(rnd.Int64N(int64(2*time.Second))))
				if rnd.IntN(4) == 0 {
					stop()
				} else {
					kill()
				}
			}
		})
	}
	busy.Wait()
	runs := append(tr.finish(t, 8, 30*time.Second), held...)
	tr.judge(t, tasks, runs)

	how, killed := make(map[string]int), 0
	for _, r := range runs {
		how[r.how]++
	}
	for _, book := range tr.books {
		if book.killed > 0 {
			killed++
		}
	}
	after := gaps(runs, func(r keyedRun) bool { return r.how == ranDead })
	t.Logf("%d tasks, %d runs (%v) by %d processes, %d of them killed, and %d by the application, in %v; a run that was killed was followed after %v at the median, %v at most",
		len(tasks), len(runs)-len(held), how, len(tr.books), killed, len(held), time.Since(began).Round(ms), quantile(after, 0.5).Round(ms), quantile(after, 1).Round(ms))
	if how[ranDead] == 0 && !testing.Short() {
		t.Error("no kill hit a run: the test shows nothing")
	}
}

// mixedTask is the i-th task of a run under kills: some fail, some take long, and a
// few take longer than a lease.
func mixedTask(i int) duly.Task {
	kind := "exclusive"
	if i%10 == 3 {
		kind = "exclusive.fails"
	}
	takes := time.Duration(1+i%8) * ms
	if i%20 == 0 {
		takes *= 20
	}
	if i%200 == 0 {
		takes = 1500 * ms
	}
	return duly.Task{Kind: kind, Payload: []byte(takes.String())}
}

// The end of one run of a lock key begins the next, in whichever process it is:
// nobody waits for a lease to end or for the next poll.
func TestLockKeysAreHandedOverAtOnce(t *testing.T) {
	t.Parallel()
	const keys, each = 8, 150
	tr := newTroupe(t, process{Slots: keys, Lease: 30 * time.Second}) // a free slot in each of two processes
	var tasks []keyedTask
	from := time.Now().Truncate(time.Microsecond)
	for i := range keys * each {
		tasks = append(tasks, keyedTask{fmt.Sprintf("task-%05d", i), fmt.Sprint("key-", i%keys), from.Add(2*time.Second + time.Duration(i)*time.Microsecond)})
	}
	tr.enqueueKeyed(t, tasks, func(int) duly.Task { return duly.Task{Kind: "exclusive", Payload: []byte("2ms")} })
	runs := tr.finish(t, 2, 30*time.Second)
	tr.judge(t, tasks, runs)

	all := gaps(runs, func(keyedRun) bool { return true })
	t.Logf("%d handovers of %d keys: p50 %v, p99 %v, the longest %v",
		len(all), keys, quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1))
	if p50 := quantile(all, 0.5); p50 > time.Second {
		t.Errorf("half of the handovers took more than %v", p50)
	}
}
