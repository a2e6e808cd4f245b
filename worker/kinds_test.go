package worker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// A gauge counts the handlers of each kind that run, and have run.
type gauge struct {
	mu                 sync.Mutex // guards what follows
	running, most, ran map[string]int
}

func newGauge() *gauge {
	return &gauge{running: make(map[string]int), most: make(map[string]int), ran: make(map[string]int)}
}

// around has a handler counted, also if it does not return.
func (g *gauge) around(h handler) handler {
	return func(ctx context.Context, d *duly.Delivery) error {
		g.mu.Lock()
		g.running[d.Kind]++
		g.most[d.Kind] = max(g.most[d.Kind], g.running[d.Kind])
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			g.running[d.Kind]--
			g.ran[d.Kind]++
			g.mu.Unlock()
		}()
		return h(ctx, d)
	}
}

// of returns how many of a kind have run, and ran at once at most.
func (g *gauge) of(kind string) (ran, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ran[kind], g.most[kind]
}

// until is a handler that takes a while, or until its context ends.
func until(d time.Duration) handler {
	return func(ctx context.Context, _ *duly.Delivery) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// addKind adds tasks of a kind, due one µs after the other from now on.
func (f *fake) addKind(kind string, n int) {
	for i := range n {
		f.addTask(duly.Task{ID: fmt.Sprintf("%s-%05d", kind, i), Kind: kind}, time.Duration(i)*time.Microsecond)
	}
}

// Whatever handlers do: return, fail, panic or end their goroutine.
func TestNeverMoreHandlersOfAKindRunThanItsLimit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, g := newFake("q"), newGauge()
		f.trip = time.Millisecond
		limits := map[string]int{"one": 1, "three": 3, "twenty": 20}
		for kind := range limits {
			f.addKind(kind, 200)
		}
		f.addKind("free", 200)
		launch(t, g.around(func(context.Context, *duly.Delivery) error {
			time.Sleep(rand.N(20 * time.Millisecond))
			switch rand.IntN(5) {
			case 0:
				return errBoom
			case 1:
				panic("now and then")
			case 2:
				runtime.Goexit()
			}
			return nil
		}), worker.Config{
			Concurrency: 10, KindLimits: limits,
			Backoff: func(int, error, *duly.Task) time.Duration { return rand.N(time.Second) },
		}, f)
		pass(5 * time.Minute)
		for kind, want := range map[string]int{"one": 1, "three": 3, "twenty": 10, "free": 10} {
			if ran, most := g.of(kind); most > want || ran < 200 || want < 10 && most < want {
				t.Errorf("%s: %d ran at once, want %d; %d in all", kind, most, want, ran)
			}
		}
		if n := f.left(); n > 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}

// A thousand tasks of a limited kind come first and take ten seconds each.
func TestOtherKindsRunOnBesideOneAtItsLimit(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, g := newFake("q"), newGauge()
		f.trip = time.Millisecond
		f.addKind("limited", 1000)
		f.addKind("other", 200)
		for i := range 200 {
			f.tasks[fmt.Sprintf("other-%05d", i)].due = time.Now().Add(10 * time.Millisecond)
		}
		launch(t, g.around(func(ctx context.Context, d *duly.Delivery) error {
			if d.Kind == "limited" {
				return until(10*time.Second)(ctx, d)
			}
			return until(100*time.Millisecond)(ctx, d)
		}), worker.Config{Concurrency: 10, KindLimits: map[string]int{"limited": 2}}, f)
		pass(5 * time.Second) // 2.5 s of work for the eight goroutines that are left
		if ran, most := g.of("other"); ran != 200 || most != 8 {
			t.Errorf("%d of 200 others ran, %d at once; want 8", ran, most)
		}
	})
}

// What is over the limit is given back, and comes again a hundred times a second at
// most, however many there are, once the first have been sorted out.
func TestAKindOverItsLimitIsNoLoopOfPopsAndReleases(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.trip = time.Millisecond
		f.addKind("limited", 2000)
		w := launch(t, until(time.Minute), worker.Config{Concurrency: 10, KindLimits: map[string]int{"limited": 2}}, f)
		pass(2 * time.Second)
		first := w.Stats().Limited
		if first < 1990 || first > 2500 {
			t.Errorf("%d were given back in the first two seconds, want each of 2,000 about once", first)
		}
		pops, settles := len(f.told("pop")), len(f.told("settle"))
		const seconds = 30
		pass(seconds * time.Second)
		pops, settles = len(f.told("pop"))-pops, len(f.told("settle"))-settles
		given := w.Stats().Limited - first
		t.Logf("in %d s: %d pops, %d settlements, %d given back", seconds, pops, settles, given)
		if given > 105*seconds || settles > 105*seconds || pops > 250*seconds { // the fake hints after each settlement
			t.Errorf("in %d s: %d pops, %d settlements, %d given back", seconds, pops, settles, given)
		}
	})
}

// The places of a kind are in use as long as there are tasks of it, be they quick
// or not.
func TestAKindAtItsLimitUsesAllOfIt(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{time.Millisecond, 7 * time.Millisecond, 60 * time.Millisecond, 2 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				const limit = 3
				tasks := 600
				if takes > time.Second {
					tasks = 60
				}
				f, g := newFake("q"), newGauge()
				f.trip = time.Millisecond
				f.addKind("limited", tasks)
				launch(t, g.around(work(takes)), worker.Config{Concurrency: 10, KindLimits: map[string]int{"limited": limit}}, f)
				began := time.Now()
				for f.left() > 0 && time.Since(began) < time.Hour {
					pass(50 * time.Millisecond)
				}
				took, ideal := time.Since(began), time.Duration(tasks/limit)*takes
				t.Logf("took %v, the limit allows %v", took, ideal)
				if _, most := g.of("limited"); most != limit || took > ideal*3/2+100*time.Millisecond {
					t.Errorf("took %v, the limit allows %v; %d ran at once", took, ideal, most)
				}
			})
		})
	}
}

func TestTasksThatWaitForAPlaceAmongTheirKindAreStartedInDueOrder(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.addKind("limited", 4)
		launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
			j.add(d)
			time.Sleep(100 * time.Millisecond)
			return nil
		}), worker.Config{KindLimits: map[string]int{"limited": 2}}, f)
		pass(time.Second)
		var order []string
		for _, e := range j.all() {
			order = append(order, e.ID)
		}
		if len(order) != 4 || slices.Max(order[:2]) > slices.Min(order[2:]) {
			t.Errorf("started in the order %v", order)
		}
	})
}

// What waits in one worker is given back within a second, and another that is free
// runs it.
func TestATaskDoesNotWaitForAPlaceWhileAnotherWorkerHasOne(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, g := newFake("q"), newGauge()
		f.trip = time.Millisecond
		f.addKind("limited", 4)
		cfg := worker.Config{KindLimits: map[string]int{"limited": 2}}
		launch(t, g.around(until(time.Minute)), cfg, f)
		pass(100 * time.Millisecond)
		launch(t, g.around(until(time.Minute)), cfg, f)
		pass(30 * time.Second) // it comes to the one or the other by chance
		if _, most := g.of("limited"); most != 4 {
			t.Errorf("%d run, want 2 in each worker", most)
		}
	})
}

func TestADrainGivesBackWhatWaitsForAPlaceAmongItsKind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, g := newFake("q"), newGauge()
		f.addKind("limited", 4)
		due := f.tasks["limited-00003"].due
		w := launch(t, g.around(work(time.Second)), worker.Config{KindLimits: map[string]int{"limited": 2}}, f)
		pass(500 * time.Millisecond)
		if n := f.leased(); n != 4 {
			t.Errorf("%d are leased, want 2 that run and 2 that wait", n)
		}
		w.stop()
		if ran, _ := g.of("limited"); ran != 2 || f.left() != 2 || f.leased() != 0 {
			t.Errorf("%d ran, %d are left, %d of them leased", ran, f.left(), f.leased())
		}
		last := f.tasks["limited-00003"]
		if !last.due.Equal(due) || last.failures+last.crashes > 0 {
			t.Errorf("given back with another due time or a burned attempt: %+v", last)
		}
	})
}

func TestAnExpiredTaskNeedsNoPlaceAmongItsKind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.addKind("limited", 1)
		w := launch(t, until(time.Minute), worker.Config{KindLimits: map[string]int{"limited": 1}}, f)
		pass(time.Second)
		f.addTask(duly.Task{ID: "late", Kind: "limited", Expires: time.Now().Add(-time.Second)}, -time.Minute)
		pass(time.Second)
		if s := w.Stats(); s.Expired != 1 || s.Limited != 0 {
			t.Errorf("worker %+v, want one expired and none given back", s)
		}
	})
}

// Those that wait for a place have lent their slots, and take them back.
func TestAWorkerHoldsNoMoreThanItRunsAfterManyHaveWaitedForAPlace(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.trip = time.Millisecond
		f.addKind("limited", 300)
		launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
			if d.Kind == "limited" {
				return until(20*time.Millisecond)(ctx, d)
			}
			return until(time.Minute)(ctx, d)
		}), worker.Config{Concurrency: 4, KindLimits: map[string]int{"limited": 1}}, f)
		for f.left() > 0 {
			pass(100 * time.Millisecond)
		}
		f.addKind("other", 100)
		pass(time.Second)
		if n := f.leased(); n != 4 {
			t.Errorf("%d are leased, want the 4 that run", n)
		}
	})
}

// Quick handlers are fetched ahead of, with tasks of a limited kind behind two slow
// ones that take both goroutines.
func TestATaskThatIsGivenBackForWantOfAGoroutineGivesUpItsPlace(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, g := newFake("q"), newGauge()
		f.trip = time.Millisecond
		f.addKind("quick", 500)
		for i, kind := range []string{"slow", "slow", "limited", "limited", "limited", "limited", "limited", "limited"} {
			f.addTask(duly.Task{ID: fmt.Sprint(kind, i), Kind: kind}, time.Millisecond+time.Duration(i)*time.Microsecond)
		}
		w := launch(t, g.around(func(ctx context.Context, d *duly.Delivery) error {
			if d.Kind == "slow" {
				return until(5*time.Second)(ctx, d)
			}
			return until(500*time.Microsecond)(ctx, d)
		}), worker.Config{Concurrency: 2, KindLimits: map[string]int{"limited": 3}}, f)
		pass(time.Second)
		if ran, _ := g.of("limited"); ran > 0 || w.Stats().Released < 3 {
			t.Fatalf("%d ran and %d were given back: the case did not arise", ran, w.Stats().Released)
		}
		pass(30 * time.Second)
		if n := f.left(); n > 0 {
			t.Errorf("%d tasks are left", n)
		}
	})
}
