package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// A site is a real Redis with queues that several workers open.
type site struct {
	*testing.T
	rdb *redis.Client
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{t, redistest.Start(t).Client()}
}

// open opens a queue as one more process would.
func (s *site) open(name string) *queue.Queue {
	s.Helper()
	q, err := queue.New(s.rdb, name, queue.Config{})
	must(s, err)
	return q
}

// fill enqueues n tasks of a kind that are due now.
func (s *site) fill(q *queue.Queue, kind string, n int) {
	s.Helper()
	tasks := make([]duly.Task, n)
	for i := range tasks {
		tasks[i] = duly.Task{ID: fmt.Sprintf("%s-%05d", kind, i), Kind: kind}
	}
	for part := range slices.Chunk(tasks, queue.MaxBatch) {
		_, err := q.EnqueueMany(s.Context(), part)
		must(s, err)
	}
}

// left counts the tasks that are due or leased.
func (s *site) left(q *queue.Queue) int {
	s.Helper()
	stats, err := q.Stats(s.Context())
	must(s, err)
	return stats.Due + stats.Leased
}

// Eight workers with ten goroutines each.
func TestNoMoreTasksRunThanTheQueueAllowsOverAllWorkers(t *testing.T) {
	t.Parallel()
	s, g := newSite(t), newGauge()
	q := s.open("limited")
	const most, tasks = 7, 400
	s.fill(q, "k", tasks)
	must(t, q.SetLimits(t.Context(), queue.Limits{Running: most}))
	var workers []*run
	for range 8 {
		workers = append(workers, launch(t, g.around(work(2*time.Millisecond)), worker.Config{}, s.open("limited")))
	}
	leased := int64(0)
	eventually(t, "all are done", time.Minute, func() bool {
		n, err := s.rdb.ZCard(t.Context(), "duly:{limited}:leased").Result()
		must(t, err)
		leased = max(leased, n)
		ran, _ := g.of("k")
		return ran == tasks && s.left(q) == 0
	})
	if _, running := g.of("k"); running > most || leased > most || leased == 0 {
		t.Errorf("%d ran at once, %d were leased; %d may", running, leased, most)
	}
	shared := 0
	for _, w := range workers {
		if w.Stats().Acked > 0 {
			shared++
		}
	}
	t.Logf("%d of 8 workers ran some", shared)
}

// Another worker has the place, and stops when its task has ended: the one that
// waits neither polls, for that is 5 s, nor waits for a lease to end, for that is 15.
func TestAWorkerThatWaitsForAPlaceHasItAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	q := s.open("limited")
	must(t, q.SetLimits(t.Context(), queue.Limits{Running: 1}))
	s.fill(q, "k", 1)
	started, end := make(chan string, 2), make(chan struct{})
	running := func(name string) handler {
		return func(context.Context, *duly.Delivery) error {
			started <- name
			<-end
			return nil
		}
	}
	first := launch(t, running("first"), worker.Config{}, q)
	<-started
	s.fill(q, "other", 1)
	launch(t, running("second"), worker.Config{}, s.open("limited"))
	select {
	case name := <-started:
		t.Fatalf("the %s worker started a second task", name)
	case <-time.After(300 * time.Millisecond): // it has popped, and waits
	}
	first.cancel()
	ended := time.Now()
	close(end)
	if name := <-started; name != "second" {
		t.Errorf("the %s worker started it", name)
	}
	within(t, "started after", time.Since(ended), 0, 3*time.Second)
	t.Logf("started after %v", time.Since(ended))
}

func TestARaisedLimitStartsTasksAtOnceAndALoweredOneStopsNone(t *testing.T) {
	t.Parallel()
	s, g := newSite(t), newGauge()
	q := s.open("limited")
	operator := s.open("limited")
	must(t, operator.SetLimits(t.Context(), queue.Limits{Running: 1}))
	s.fill(q, "k", 9)
	end := make(chan struct{})
	launch(t, g.around(func(ctx context.Context, _ *duly.Delivery) error {
		select {
		case <-end:
		case <-ctx.Done():
			t.Error("the context of a task has ended")
		}
		return nil
	}), worker.Config{}, q)
	running := func(n int) func() bool {
		return func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.running["k"] == n
		}
	}
	eventually(t, "one runs", 3*time.Second, running(1))
	must(t, operator.SetLimits(t.Context(), queue.Limits{Running: 4}))
	eventually(t, "four run", 3*time.Second, running(4)) // polls are 5 s apart
	must(t, operator.SetLimits(t.Context(), queue.Limits{Running: 2}))
	must(t, operator.SetLimits(t.Context(), queue.Limits{Running: 3}))
	if !running(4)() {
		t.Error("a lowered limit has stopped a task")
	}
	must(t, operator.SetLimits(t.Context(), queue.Limits{}))
	eventually(t, "all run", 3*time.Second, running(9))
	close(end)
}

// A killed worker's leases are counted until they end, and no longer.
func TestThePlacesOfADeadWorkerAreFreeWithinLeasePlus1s(t *testing.T) {
	t.Parallel()
	const lease, most = time.Second, 3
	s := newScene(t, process{Slots: 8, Lease: lease})
	must(t, s.SetLimits(t.Context(), queue.Limits{Running: most}))
	for i := range 8 {
		_, err := s.Enqueue(t.Context(), duly.Task{ID: fmt.Sprint("task-", i), Kind: "hold"})
		must(t, err)
	}
	first := s.spawn(t)
	eventually(t, "three run", 10*time.Second, func() bool { return len(s.runs(t)) == most })
	second := s.spawn(t)
	time.Sleep(2 * lease) // the leases are extended by now
	if n := len(s.runs(t)); n != most {
		t.Errorf("%d runs while the first worker lives, want %d", n, most)
	}
	killed := time.Now()
	first.kill()
	eventually(t, "as many run again", 10*time.Second, func() bool { return len(s.runs(t)) >= 2*most })
	time.Sleep(lease / 2)
	second.kill()
	runs := s.runs(t)[most:]
	if len(runs) != most {
		t.Errorf("%d run in the second worker, want %d", len(runs), most)
	}
	for _, r := range runs {
		within(t, r.id+" ran after", r.at.Sub(killed), 0, lease+time.Second)
	}
}

// What one has fetched ahead and cannot start it gives back, for another that can.
func TestAWorkerThatFetchesAheadDoesNotHoardTheQueuesPlaces(t *testing.T) {
	t.Parallel()
	s, g := newSite(t), newGauge()
	q := s.open("limited")
	must(t, q.SetLimits(t.Context(), queue.Limits{Running: 20}))
	h := g.around(func(ctx context.Context, d *duly.Delivery) error {
		if d.Kind == "slow" {
			return until(time.Minute)(ctx, d)
		}
		return nil
	})
	s.fill(q, "quick", 3000)
	first := launch(t, h, worker.Config{Concurrency: 4, DrainTimeout: -1}, q)
	eventually(t, "the first has got quick", 10*time.Second, func() bool { return s.left(q) == 0 })
	launch(t, h, worker.Config{Concurrency: 50, DrainTimeout: -1}, s.open("limited"))
	s.fill(q, "slow", 30)
	eventually(t, "as many run as may", 3*time.Second, func() bool {
		_, most := g.of("slow")
		return most == 20
	})
	if n := first.Stats().Running; n > 4 {
		t.Errorf("%d run in the first", n)
	}
}

// By the server's times of four workers' deliveries.
func TestARateIsKeptOverAllWorkersAndReached(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	q := s.open("limited")
	const tasks, rate, burst = 400, 250, 5
	s.fill(q, "k", tasks)
	must(t, q.SetLimits(t.Context(), queue.Limits{Rate: rate, Burst: burst}))
	var mu sync.Mutex
	var popped []time.Time
	var ran atomic.Int64
	for range 4 {
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			popped = append(popped, d.Popped)
			ran.Add(1)
			return nil
		}), worker.Config{}, s.open("limited"))
	}
	eventually(t, "all are done", time.Minute, func() bool { return ran.Load() == tasks })
	slices.SortFunc(popped, time.Time.Compare)
	for i := range popped {
		for j := i; j < len(popped); j++ {
			if window := popped[j].Sub(popped[i]); float64(j-i+1) > burst+rate*window.Seconds()+1e-6 {
				t.Fatalf("%d tasks in %v", j-i+1, window)
			}
		}
	}
	took, ideal := popped[tasks-1].Sub(popped[0]), time.Duration(tasks-burst)*time.Second/rate
	t.Logf("took %v, the rate allows %v", took, ideal)
	if took > 3*ideal {
		t.Errorf("took %v, the rate allows %v", took, ideal)
	}
}

// Ten thousand due tasks of one kind stand before two hundred of others.
func TestAKindAtItsLimitHoldsUpNoOtherWith10000DueOnARealRedis(t *testing.T) {
	t.Parallel()
	s, g := newSite(t), newGauge()
	q := s.open("mixed")
	limited, most := 10_000, 3
	if testing.Short() {
		limited = 2000
	}
	s.fill(q, "limited", limited)
	s.fill(q, "other", 200)
	began := time.Now()
	w := launch(t, g.around(func(_ context.Context, d *duly.Delivery) error {
		if d.Kind == "limited" {
			time.Sleep(time.Millisecond)
		}
		return nil
	}), worker.Config{KindLimits: map[string]int{"limited": most}}, q)
	done := func(kind string, n int) func() bool {
		return func() bool { ran, _ := g.of(kind); return ran >= n }
	}
	eventually(t, "all others have run", time.Minute, done("other", 200))
	before, _ := g.of("limited")
	t.Logf("the others are done after %v, with %d of the kind", time.Since(began), before)
	if before > limited*9/10 {
		t.Errorf("%d of the kind ran before the others were done", before)
	}
	eventually(t, "all of the kind have run", 2*time.Minute, func() bool { return done("limited", limited)() && s.left(q) == 0 })
	t.Logf("all are done after %v, %d times one was given back", time.Since(began), w.Stats().Limited)
	if _, at := g.of("limited"); at != most {
		t.Errorf("%d of the kind ran at once, want %d", at, most)
	}
	stats, err := q.Stats(t.Context())
	must(t, err)
	if stats.Counters["release"] > int64(5*limited) {
		t.Errorf("%d releases of %d tasks", stats.Counters["release"], limited)
	}
}
