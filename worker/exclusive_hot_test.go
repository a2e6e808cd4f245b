package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// A stage runs tasks of this process and writes down when.
type stage struct {
	mu   sync.Mutex // guards what follows
	runs []keyedRun
	ran  map[string]int           // by kind
	last map[string]time.Duration // end, by kind
}

func newStage() *stage {
	return &stage{ran: make(map[string]int), last: make(map[string]time.Duration)}
}

// progress tells how many tasks of a kind have run, and when the last of them ended.
func (s *stage) progress(kind string) (int, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ran[kind], s.last[kind]
}

func (s *stage) HandleTask(_ context.Context, d *duly.Delivery) error {
	r := keyedRun{id: d.ID, key: d.LockKey, fence: d.Fence, start: monotonic(), how: ranOK}
	if d.LockKey == "" {
		time.Sleep(4 * ms)
	}
	r.end = monotonic()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ran[d.Kind]++
	s.last[d.Kind] = r.end
	if d.LockKey != "" {
		s.runs = append(s.runs, r)
	}
	return nil
}

// A lock key with many tasks holds up nobody else: while ten thousand of one key run
// one after the other, tasks without a key go on as if they were alone.
func TestHotLockKeyHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	hot, plain := 10_000, 2_000
	if testing.Short() {
		hot, plain = 1_000, 500
	}
	q, err := queue.New(redistest.Start(t).Client(), "tasks", queue.Config{})
	must(t, err)
	s := newStage()
	launch(t, s, worker.Config{Concurrency: 16}, q)
	// plainly tells how long the tasks without a key take.
	plainly := func(kind string) time.Duration {
		began := monotonic()
		enqueueMany(t, q, plain, func(i int) duly.Task { return duly.Task{ID: fmt.Sprint(kind, i), Kind: kind} })
		var ran int
		var last time.Duration
		eventually(t, "tasks without a key are done", time.Minute, func() bool {
			ran, last = s.progress(kind)
			return ran == plain
		})
		return last - began
	}
	alone := plainly("alone")

	tasks := make([]keyedTask, hot)
	due := time.Now().Add(300 * ms).Truncate(time.Microsecond)
	for i := range tasks {
		tasks[i] = keyedTask{fmt.Sprintf("hot-%05d", (i*7919)%hot), "hot", due.Add(time.Duration(i) * time.Microsecond)}
	}
	(&scene{Queue: q}).enqueueKeyed(t, tasks, func(int) duly.Task { return duly.Task{Kind: "hot"} })
	busy := func() (ran int) {
		ran, _ = s.progress("hot")
		return ran
	}
	eventually(t, "the hot key is busy", time.Minute, func() bool { return busy() > 0 })
	beside := plainly("beside")
	left := hot - busy()
	eventually(t, "all tasks are done", 2*time.Minute, func() bool { return busy() == hot })

	s.mu.Lock()
	defer s.mu.Unlock()
	wrong := judge(tasks, s.runs)
	for _, text := range wrong[:min(len(wrong), 20)] {
		t.Error(text)
	}
	all := gaps(s.runs, func(keyedRun) bool { return true })
	t.Logf("%d tasks took %v alone and %v beside %d of one key, of which %d were left then; handovers p50 %v, p99 %v",
		plain, alone.Round(ms), beside.Round(ms), hot, left, quantile(all, 0.5), quantile(all, 0.99))
	if beside > 4*alone+time.Second {
		t.Errorf("tasks without a key took %v beside a hot one, %v alone", beside, alone)
	}
}

// enqueueMany adds tasks that are due now.
func enqueueMany(t *testing.T, q *queue.Queue, n int, task func(i int) duly.Task) {
	t.Helper()
	all := make([]duly.Task, n)
	for i := range all {
		all[i] = task(i)
	}
	for part := range slices.Chunk(all, queue.MaxBatch) {
		_, err := q.EnqueueMany(t.Context(), part)
		must(t, err)
	}
}
