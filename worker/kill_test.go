package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// tally is what came of tasks, in the words of Jepsen's total-queue checker.
type tally struct {
	attempts, acked int // enqueues tried, and confirmed
	lost            int // confirmed and never done
	unexpected      int // done and never tried
	duplicated      int // run more often than they were to be
	recovered       int // not confirmed, and done
}

// enqueued is which tasks were tried, and whether each was confirmed.
type enqueued map[string]bool

// enqueue adds tasks one by one: some delayed, some that fail once, and some of
// which the reply is not waited for.
func (s *scene) enqueue(t *testing.T, n int, pace time.Duration) enqueued {
	all := make(enqueued)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := range n {
		task := duly.Task{ID: fmt.Sprintf("task-%05d", i), Kind: "quick"}
		if i%10 == 3 {
			task.Kind = "fails"
		}
		var in time.Duration
		if i%5 == 0 {
			in = rand.N(2 * time.Second)
		}
		ctx, cancel := t.Context(), func() {}
		if i%50 == 7 {
			ctx, cancel = context.WithTimeout(ctx, rand.N(300*time.Microsecond))
		}
		_, err := s.Enqueue(ctx, task, queue.In(in))
		cancel()
		all[task.ID] = err == nil
		if err != nil && i%50 != 7 {
			t.Error(err)
		}
		<-tick.C
	}
	return all
}

// count judges the log. The acks of a task are counted by the witnesses, and in
// the queue by those that Redis made, which a witness may have died too early to
// tell.
func (s *scene) count(t *testing.T, tasks enqueued) (total tally, reruns, early, doubleAcks int) {
	t.Helper()
	runs := s.runs(t)
	seen, each := make(map[string]bool), make(map[string]int)
	for _, r := range runs {
		seen[r.id] = true
		each[fmt.Sprint(r.id, "#", r.attempt)]++
		if r.popped.Before(r.due) || r.at.Before(r.due) {
			early++
		}
	}
	for _, n := range each {
		reruns += n - 1
		total.duplicated += min(n-1, 1)
	}
	done := 0
	for id, confirmed := range tasks {
		total.attempts++
		if seen[id] {
			done++
		}
		if confirmed {
			total.acked++
		}
		if confirmed && !seen[id] {
			total.lost++
		}
		if !confirmed && seen[id] {
			total.recovered++
		}
	}
	total.unexpected = len(seen) - done
	acks, err := s.log.LRange(t.Context(), "acks", 0, -1).Result()
	must(t, err)
	told := make(map[string]int)
	for _, id := range acks {
		if told[id]++; told[id] > 1 {
			doubleAcks++
		}
	}
	stats, err := s.Stats(t.Context())
	must(t, err)
	if n := int(stats.Counters["ack"]); n != done || len(told) > done || stats.Dead != 0 {
		t.Errorf("Redis acked %d, the witnesses %d, of %d tasks that ran; %d are dead", n, len(told), done, stats.Dead)
	}
	return total, reruns, early, doubleAcks
}

// Workers are killed at random while tasks come in and are run by those that are
// started in their place. Every task is done, none before it is due; a kill costs
// no more than what the worker was about to do.
func TestNothingIsLostWhenWorkersAreKilledAtRandom(t *testing.T) {
	t.Parallel()
	tasks, kills := 5000, int64(300)
	if testing.Short() {
		tasks, kills = 500, 20
	}
	s := newScene(t, process{Slots: 4, Lease: 500 * time.Millisecond, MaxCrashes: 1_000_000})
	began := time.Now()
	var killed atomic.Int64
	var busy sync.WaitGroup
	for range 3 {
		busy.Go(func() {
			for killed.Add(1) <= kills {
				c := s.spawn(t)
				time.Sleep(5*time.Millisecond + rand.N(60*time.Millisecond))
				c.kill()
			}
		})
	}
	all := s.enqueue(t, tasks, 2*time.Millisecond)
	busy.Wait()
	took := time.Since(began)
	last := s.spawn(t)
	eventually(t, "all tasks are done", 20*time.Second, func() bool { return s.empty(t) })
	last.stop(t)

	total, reruns, early, doubleAcks := s.count(t, all)
	t.Logf("%d kills in %v: %+v; reruns %d, double acks %d, early %d", kills, took.Round(time.Millisecond), total, reruns, doubleAcks, early)
	if total.lost+total.unexpected+doubleAcks+early != 0 {
		t.Error("want none lost, unexpected, acked twice or early")
	}
	if most := int(kills) * s.Slots; reruns > most {
		t.Errorf("%d reruns, want at most %d: what a worker was doing when it was killed", reruns, most)
	}
}

// A task that ends its process is buried when it has done so three times. Those
// that it takes along, among them some that are due with it and outlast it, are
// done.
func TestTaskThatKillsItsWorkerThreeTimesIsBuried(t *testing.T) {
	t.Parallel()
	s := newScene(t, process{Slots: 4, Lease: 900 * time.Millisecond})
	ctx := t.Context()
	_, err := s.Enqueue(ctx, duly.Task{ID: "poison", Kind: "poison"}, queue.In(200*time.Millisecond))
	must(t, err)
	all := make(enqueued)
	for i := range 300 {
		task, in := duly.Task{ID: fmt.Sprintf("task-%03d", i), Kind: "quick"}, time.Duration(i)*5*time.Millisecond
		if i < 3 {
			task.Kind, task.Payload, in = "takes", []byte("100ms"), 200*time.Millisecond
		}
		_, err := s.Enqueue(ctx, task, queue.In(in))
		must(t, err)
		all[task.ID] = true
	}
	deaths := 0
	for !s.empty(t) && deaths < 10 {
		c := s.spawn(t)
		died := make(chan struct{})
		go func() {
			defer close(died)
			_ = c.cmd.Wait()
		}()
		eventually(t, "the worker died, or has done all", 20*time.Second, func() bool {
			select {
			case <-died:
				return true
			default:
				return s.empty(t)
			}
		})
		if s.empty(t) {
			_ = c.stdin.Close()
		}
		<-died
		if c.cmd.ProcessState.ExitCode() == 3 {
			deaths++
		}
	}
	poisoned := 0
	for _, r := range s.runs(t) {
		if r.id == "poison" {
			poisoned++
		}
	}
	info, err := s.Get(ctx, "poison")
	must(t, err)
	if poisoned != 3 || deaths != 3 || info.State != queue.Dead {
		t.Errorf("%d runs and %d deaths, the task is %s; want 3 and dead", poisoned, deaths, info.State)
	}
	stats, err := s.Stats(ctx)
	must(t, err)
	if stats.Dead != 1 || stats.Counters["ack"] != int64(len(all)) {
		t.Errorf("queue %+v, want all others acked", stats)
	}
}

// A worker that died takes its tasks nowhere: another runs them within a lease
// and a second, and the death is no failed attempt.
func TestTasksOfADeadWorkerRunAgainWithinLeasePlus1s(t *testing.T) {
	t.Parallel()
	const lease = time.Second
	s := newScene(t, process{Slots: 8, Lease: lease})
	for i := range 8 {
		_, err := s.Enqueue(t.Context(), duly.Task{ID: fmt.Sprint("task-", i), Kind: "hold"})
		must(t, err)
	}
	first := s.spawn(t)
	eventually(t, "all tasks run", 10*time.Second, func() bool { return len(s.runs(t)) == 8 })
	time.Sleep(2 * lease) // the leases are extended by now
	second := s.spawn(t)
	time.Sleep(lease / 2)
	if n := len(s.runs(t)); n != 8 {
		t.Errorf("%d runs while the first worker lives, want 8", n)
	}
	killed := time.Now() // the server's clock as well: it runs on the same machine
	first.kill()
	eventually(t, "all tasks run again", 10*time.Second, func() bool { return len(s.runs(t)) >= 16 })
	second.kill()
	for _, r := range s.runs(t)[8:] {
		within(t, r.id+" ran again after", r.at.Sub(killed), 0, lease+time.Second)
		if r.attempt != 1 || r.crashes != 1 {
			t.Errorf("%s: attempt %d after %d crashes, want the first after one", r.id, r.attempt, r.crashes)
		}
	}
}

// A worker that was stopped for longer than its lease, as a virtual machine can
// be, goes on as if nothing had been. What it did counts for nothing: another has
// done it meanwhile.
func TestWorkerThatSleptThroughItsLeaseIsTooLate(t *testing.T) {
	t.Parallel()
	const lease = 500 * time.Millisecond
	s := newScene(t, process{Slots: 4, Lease: lease})
	all := make(enqueued)
	for i := range 4 {
		id := fmt.Sprint("task-", i)
		_, err := s.Enqueue(t.Context(), duly.Task{ID: id, Kind: "takes", Payload: []byte("400ms")})
		must(t, err)
		all[id] = true
	}
	sleeper := s.spawn(t)
	eventually(t, "all tasks run", 10*time.Second, func() bool { return len(s.runs(t)) == 4 })
	sleeper.freeze(t)
	other := s.spawn(t)
	eventually(t, "another has done them", 10*time.Second, func() bool { return s.empty(t) })
	must(t, sleeper.cmd.Process.Signal(syscall.SIGCONT))
	time.Sleep(lease)
	sleeper.stop(t)
	other.stop(t)
	total, reruns, early, doubleAcks := s.count(t, all)
	if total.lost+total.unexpected+early+doubleAcks != 0 || reruns != 4 {
		t.Errorf("%+v, %d reruns, %d early, %d double acks; want 4 reruns alone", total, reruns, early, doubleAcks)
	}
}
