package worker_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// told returns why the contexts of handlers ended, by task.
func (s *scene) told(t *testing.T) map[string]string {
	t.Helper()
	lines, err := s.log.LRange(t.Context(), "told", 0, -1).Result()
	must(t, err)
	causes := make(map[string]string)
	for _, line := range lines {
		id, cause, _ := strings.Cut(line, " ")
		causes[id] = cause
	}
	return causes
}

func (s *scene) add(t *testing.T, tasks ...duly.Task) {
	t.Helper()
	_, err := s.EnqueueMany(t.Context(), tasks)
	must(t, err)
}

// A handler in another process is told, and its task is gone without a second run.
func TestARunInAnotherProcessIsCancelled(t *testing.T) {
	t.Parallel()
	s := newScene(t, process{Slots: 4, Lease: time.Minute})
	s.add(t, duly.Task{ID: "a", Kind: "told"}, duly.Task{ID: "b", Kind: "told"})
	c := s.spawn(t)
	eventually(t, "both run", 10*time.Second, func() bool { return len(s.runs(t)) == 2 })
	cancelRunning(t, s.Queue, "a")
	eventually(t, "a is gone", 10*time.Second, func() bool {
		info, err := s.Get(t.Context(), "a")
		must(t, err)
		return info.State == queue.Missing
	})
	if told := s.told(t); len(told) != 1 || told["a"] != duly.ErrCancelled.Error() {
		t.Errorf("contexts ended: %v, want that of a, because it was cancelled", told)
	}
	cancelRunning(t, s.Queue, "b")
	eventually(t, "all are gone", 10*time.Second, func() bool { return s.empty(t) })
	c.stop(t)
	stats, err := s.Stats(t.Context())
	must(t, err)
	if len(s.runs(t)) != 2 || stats.Counters["cancelled"] != 2 || stats.Counters["retry"]+stats.Counters["drop"] != 0 || stats.Dead != 0 {
		t.Errorf("%d runs, left %+v", len(s.runs(t)), stats)
	}
}

// A dead worker hears of nothing. What was cancelled, be it before or after its
// death, is gone when the lease has run out; what was not is run again.
func TestACancelledTaskOfAKilledWorkerIsDroppedAtTheLeasesEnd(t *testing.T) {
	t.Parallel()
	s := newScene(t, process{Slots: 4, Lease: 900 * time.Millisecond})
	s.add(t, duly.Task{ID: "before", Kind: "told"}, duly.Task{ID: "after", Kind: "told"}, duly.Task{ID: "not", Kind: "told"})
	first := s.spawn(t)
	eventually(t, "all run", 10*time.Second, func() bool { return len(s.runs(t)) == 3 })
	first.freeze(t) // so that it cannot hear of it
	cancelRunning(t, s.Queue, "before")
	first.kill()
	cancelRunning(t, s.Queue, "after")
	second := s.spawn(t)
	eventually(t, "the other runs again", 10*time.Second, func() bool { return len(s.runs(t)) == 4 })
	if again := s.runs(t)[3]; again.id != "not" || again.crashes != 1 {
		t.Errorf("%+v ran again, want the one that was not cancelled", again)
	}
	for _, id := range []string{"before", "after"} {
		if info, err := s.Get(t.Context(), id); err != nil || info.State != queue.Missing {
			t.Errorf("%s is %s: %v", id, info.State, err)
		}
	}
	cancelRunning(t, s.Queue, "not")
	eventually(t, "it is gone too", 10*time.Second, func() bool { return s.empty(t) })
	second.stop(t)
	stats, err := s.Stats(t.Context())
	must(t, err)
	if told := s.told(t); len(told) != 1 || len(s.runs(t)) != 4 || stats.Counters["cancelled"] != 3 || stats.Dead != 0 {
		t.Errorf("told %v, %d runs, left %+v", told, len(s.runs(t)), stats)
	}
}

// 200 runs on three processes are cancelled at once, while others come and go.
// Each ends, none runs again, and nothing else is hit.
func TestManyRunsAreCancelledAtOnceUnderLoad(t *testing.T) {
	t.Parallel()
	const cancels, others = 200, 2000
	s := newScene(t, process{Slots: 100, Lease: 15 * time.Second})
	for i := range cancels {
		s.add(t, duly.Task{ID: fmt.Sprint("told-", i), Kind: "told"})
	}
	var children []*child
	for range 3 {
		children = append(children, s.spawn(t))
	}
	eventually(t, "all run", 20*time.Second, func() bool { return len(s.runs(t)) == cancels })
	var busy sync.WaitGroup
	busy.Go(func() {
		var tasks []duly.Task
		for i := range others {
			tasks = append(tasks, duly.Task{ID: fmt.Sprint("quick-", i), Kind: "quick"})
		}
		for i := 0; i < others; i += 20 {
			s.add(t, tasks[i:i+20]...)
		}
	})
	began := time.Now()
	for i := range cancels {
		busy.Go(func() { cancelRunning(t, s.Queue, fmt.Sprint("told-", i)) })
	}
	busy.Wait()
	eventually(t, "all have ended", 20*time.Second, func() bool { return len(s.told(t)) == cancels })
	t.Logf("%d were cancelled and told within %v", cancels, time.Since(began).Round(time.Millisecond))
	eventually(t, "all is done", 20*time.Second, func() bool { return s.empty(t) })
	for _, c := range children {
		c.stop(t)
	}
	for id, cause := range s.told(t) {
		if cause != duly.ErrCancelled.Error() {
			t.Errorf("%s ended: %s", id, cause)
		}
	}
	stats, err := s.Stats(t.Context())
	must(t, err)
	if n := len(s.runs(t)); n != cancels+others {
		t.Errorf("%d runs, want %d", n, cancels+others)
	}
	if c := stats.Counters; c["cancelled"] != cancels || c["ack"] != others || c["retry"]+c["reclaimed"] != 0 || stats.Dead != 0 {
		t.Errorf("left %+v", stats)
	}
}
