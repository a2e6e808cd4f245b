package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// beat is the interval of ticks on a real clock.
const beat = 200 * time.Millisecond

// onBeat checks that runs were those of ticks of the schedule, each with one
// occurrence: one that was run again is one whose worker died.
func onBeat(t *testing.T, runs []logged) {
	t.Helper()
	last := make(map[string]logged)
	for _, r := range runs {
		if r.due.UnixMicro()%beat.Microseconds() != 0 {
			t.Errorf("%s ran at %v, which is no tick", r.id, r.due)
		}
		before, ok := last[r.id]
		switch {
		case ok && r.due.Before(before.due):
			t.Errorf("%s: the tick of %v after that of %v", r.id, r.due, before.due)
		case ok && r.due.Equal(before.due) && r.crashes == 0:
			t.Errorf("%s: the tick of %v ran twice", r.id, r.due)
		}
		last[r.id] = r
	}
}

// one checks all the while that a queue holds one task, due or leased.
func one(t *testing.T, q *queue.Queue) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() {
		looks := 0
		for tick := time.NewTicker(3 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			s, err := q.Stats(context.Background())
			if err != nil || s.Due+s.Leased != 1 || s.Dead != 0 {
				t.Errorf("look %d: %d due, %d leased, %d dead, %v", looks, s.Due, s.Leased, s.Dead, err)
				return
			}
			looks++
		}
	})
	return func() { cancel(); watch.Wait() }
}

// notes is a handler that keeps runs as a log has them.
func notes(mu *sync.Mutex, runs *[]logged, takes time.Duration) handler {
	return func(_ context.Context, d *duly.Delivery) error {
		mu.Lock()
		*runs = append(*runs, logged{d.ID, d.Attempt, d.Crashes, d.Due, d.Popped, time.Now()})
		mu.Unlock()
		<-time.After(takes)
		return nil
	}
}

// Five workers, each with a client and a Queue value of its own, come and go.
func TestOneOccurrencePendsHoweverManyWorkersRunItAndRestart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var mu sync.Mutex
	var runs []logged
	cfg := worker.Config{Recurring: []worker.Recurring{worker.Every("@every "+beat.String(), tick)}}
	worker := func() *run {
		q, _ := metered(t, s)
		return launch(t, notes(&mu, &runs, 5*time.Millisecond), cfg, q)
	}
	q, _ := metered(t, s)
	first := worker()
	eventually(t, "it is there", 5*time.Second, func() bool { st, err := q.Stats(t.Context()); return err == nil && st.Due+st.Leased == 1 })
	check := one(t, q)
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for range 6 {
				w := worker()
				time.Sleep(rand.N(2 * beat))
				w.stop()
			}
		})
	}
	busy.Wait()
	time.Sleep(2 * beat)
	check()
	first.stop()
	onBeat(t, runs)
	stats, err := q.Stats(t.Context())
	must(t, err)
	if n := stats.Counters["repeat"]; n != int64(len(runs)) || stats.Counters["enqueued"] != 1 || len(runs) < 3 {
		t.Errorf("%d runs, %d repeated, enqueued %d times", len(runs), n, stats.Counters["enqueued"])
	}
	t.Logf("%d ticks", len(runs))
}

// Processes that all have the schedule are killed at any moment of a tick and
// started again. Each tick is settled once; the ones that died are run again.
func TestAWorkerKilledInTheMiddleOfATickNeitherLosesNorDoublesIt(t *testing.T) {
	t.Parallel()
	kills := 30
	if testing.Short() {
		kills = 5
	}
	s := newScene(t, process{Slots: 2, Lease: 300 * time.Millisecond, MaxCrashes: 1_000_000, Every: "@every " + beat.String()})
	first := s.spawn(t)
	eventually(t, "it is there", 5*time.Second, func() bool { return !s.empty(t) })
	check := one(t, s.Queue)
	first.kill()
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for range kills {
				c := s.spawn(t)
				time.Sleep(rand.N(2 * beat))
				c.kill()
			}
		})
	}
	busy.Wait()
	last := s.spawn(t)
	time.Sleep(10 * beat)
	check()
	last.stop(t)
	runs, crashed, settled := s.runs(t), 0, make(map[time.Time]bool)
	onBeat(t, runs)
	for _, r := range runs {
		if r.crashes > 0 {
			crashed++
		}
		settled[r.due] = true
	}
	stats, err := s.Stats(t.Context())
	must(t, err)
	ended := int(stats.Counters["repeat"])
	if stats.Counters["enqueued"] != 1 || ended > len(settled) || ended < len(settled)-1 {
		t.Errorf("%d ticks ran and %d were settled; enqueued %d times", len(settled), ended, stats.Counters["enqueued"])
	}
	if crashed == 0 || len(settled) < 10 {
		t.Errorf("%d ticks, %d runs after a crash: this shows nothing", len(settled), crashed)
	}
	t.Logf("%d kills, %d ticks, %d runs, %d of them after a crash", 2*kills+1, len(settled), len(runs), crashed)
}

// A lossy queue settles and does not say so, every other time.
type lossy struct {
	*queue.Queue
	mu   sync.Mutex
	lost int
}

func (l *lossy) Settle(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
	lost, err := l.Queue.Settle(ctx, ss)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost++; err == nil && l.lost%2 == 1 {
		return nil, queue.ErrUnknownOutcome
	}
	return lost, err
}

func TestALostReplyToTheSettlementOfATickDoublesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var mu sync.Mutex
	var runs []logged
	for range 2 {
		q, _ := metered(t, s)
		cfg := worker.Config{Recurring: []worker.Recurring{worker.Every("@every "+beat.String(), tick)}}
		launch(t, notes(&mu, &runs, time.Millisecond), cfg, &lossy{Queue: q})
	}
	q, _ := metered(t, s)
	eventually(t, "it is there", 5*time.Second, func() bool { st, err := q.Stats(t.Context()); return err == nil && st.Due+st.Leased == 1 })
	check := one(t, q)
	time.Sleep(12 * beat)
	check()
	mu.Lock()
	defer mu.Unlock()
	onBeat(t, runs)
	if len(runs) < 5 {
		t.Errorf("%d ticks", len(runs))
	}
}

// A schedule is changed by a worker that is started with another, and ended by
// Cancel, both while a tick runs.
func TestARunningScheduleIsChangedAndCancelled(t *testing.T) {
	t.Parallel()
	q, _ := metered(t, redistest.Start(t))
	began, goOn := make(chan string), make(chan bool)
	h := handler(func(_ context.Context, d *duly.Delivery) error {
		began <- fmt.Sprint(d.Every, " ", string(d.Payload))
		<-goOn
		return nil
	})
	with := func(every, payload string) worker.Config {
		return worker.Config{Recurring: []worker.Recurring{worker.Every(every, duly.Task{ID: "tick", Kind: "k", Payload: []byte(payload)})}}
	}
	launch(t, h, with("@every 100ms", "old"), q)
	if got := <-began; got != "@every 100ms old" {
		t.Errorf("began %s", got)
	}
	launch(t, h, with("@every 150ms", "new"), q)
	eventually(t, "the change waits", 5*time.Second, func() bool { i, err := q.Get(t.Context(), "tick"); return err == nil && !i.Replacement.IsZero() })
	if info, err := q.Get(t.Context(), "tick"); err != nil || info.State != queue.Leased || info.Every != "@every 100ms" {
		t.Errorf("meanwhile it is %s, %s: %v", info.State, info.Every, err)
	}
	goOn <- true
	for range 2 {
		if got := <-began; got != "@every 150ms new" {
			t.Errorf("then %s", got)
		}
		goOn <- true
	}
	<-began
	state, err := q.Cancel(t.Context(), "tick")
	must(t, err)
	if state != queue.Leased {
		t.Errorf("cancelled while %s", state)
	}
	goOn <- true
	eventually(t, "it is gone", 5*time.Second, func() bool { s, err := q.Stats(t.Context()); return err == nil && s.Due+s.Leased+s.Dead == 0 })
	select {
	case got := <-began:
		t.Errorf("after Cancel %s", got)
	case <-time.After(500 * time.Millisecond):
	}
}

// Redis comes later than the worker, and goes in between.
func TestRecurringTasksWaitForTheirRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	q, _ := metered(t, s)
	logger, logs := observe()
	var mu sync.Mutex
	var runs []logged
	w := launch(t, notes(&mu, &runs, time.Millisecond), worker.Config{
		Logger: logger, Recurring: []worker.Recurring{worker.Every("@every "+beat.String(), tick)},
	}, q)
	eventually(t, "it says so", 5*time.Second, func() bool { return logs.FilterMessageSnippet("not yet sure").Len() == 1 })
	time.Sleep(time.Second)
	s.Restart()
	eventually(t, "ticks run", 5*time.Second, func() bool { return w.Stats().Repeated > 2 })
	if n := logs.FilterMessageSnippet("not yet sure").Len(); n != 1 {
		t.Errorf("it said so %d times", n)
	}
}
