package worker_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// A sim plays a plan against real clients, scripts and workers in virtual time.
type sim struct {
	plan     simPlan
	begin    time.Time
	base     *redis.Client
	observer *redis.Client
	app      *queue.Queue
	links    []*simLink // of the application, and of workers 1 to 3
	workers  []*simWorker
	waits    sync.WaitGroup

	gate  chan struct{} // who has it calls, alone, and owns what follows
	m     *simModel
	acked map[string]bool     // versions that the queue has taken
	acts  map[string][]simAct // by version, those that are left
	runs  map[string]*simRun  // by ID and fence
	last  map[string]uint64   // fence of the last run of an ID, and of a lock key
	tally map[string]int
	wrong []string
}

// TestAnyDayOfPlannedFaultsIsThatOfTheModel plays 500 days, each from a seed of its
// own. DULY_SIM_SEED plays the one of a seed alone.
func TestAnyDayOfPlannedFaultsIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	first, n := uint64(1), simSeeds
	if testing.Short() {
		n = 50
	}
	if text := os.Getenv("DULY_SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		must(t, err)
		first, n = seed, 1
	}
	var mu sync.Mutex
	var next atomic.Uint64
	tally := make(map[string]int)
	failed := 0
	var players sync.WaitGroup
	for range 2 {
		players.Go(func() {
			for i := next.Add(1) - 1; i < uint64(n); i = next.Add(1) - 1 {
				counts, wrong := playSeed(t, first+i)
				mu.Lock()
				for what, count := range counts {
					tally[what] += count
				}
				if len(wrong) > 0 {
					if failed++; failed <= 3 {
						t.Errorf("seed %d: %s\n%v", first+i, wrong[0], drawPlan(first+i))
					}
				}
				mu.Unlock()
			}
		})
	}
	players.Wait()
	t.Logf("%d seeds, %d failed: %v", n, failed, tally)
	if n < 50 {
		return
	}
	for _, what := range []string{ // else something is not tried any more
		"crash", "drain", "lose", "cut", "outage", "reset", "unknown pop", "unknown settle", "parked", "again", "stale", "crashed",
		"ack", "drop", "bury", "retry", "release", "cancel", "replaced", "expired", "waited", "cancelled run",
	} {
		if tally[what] == 0 {
			t.Errorf("%d seeds, and never %s", n, what)
		}
	}
}

// playSeed plays the plan of a seed in a bubble of its own.
func playSeed(t *testing.T, seed uint64) (tally map[string]int, wrong []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, drawPlan(seed))
		s.play()
		s.finish()
		tally, wrong = s.tally, s.wrong
	})
	return tally, wrong
}

func newSim(t *testing.T, plan simPlan) *sim {
	t.Helper()
	dial := redistest.Virtual(t)
	s := &sim{
		plan: plan, begin: time.Now(), base: dial(), observer: dial(), gate: make(chan struct{}, 1), m: newSimModel(),
		acked: make(map[string]bool), acts: make(map[string][]simAct), runs: make(map[string]*simRun),
		last: make(map[string]uint64), tally: make(map[string]int), workers: make([]*simWorker, 5),
	}
	for range len(s.workers) {
		s.links = append(s.links, new(simLink))
	}
	client := s.links[0].client(s.base)
	s.app = s.openOn(client)
	t.Cleanup(func() {
		defer func() { _ = client.Close() }()
		for _, w := range s.workers {
			s.drain(w)
		}
		s.waits.Wait()
		time.Sleep(15 * time.Minute) // a deaf handler outlasts its worker
	})
	return s
}

func (s *sim) openOn(client *redis.Client) *queue.Queue {
	q, err := queue.New(client, "sim", queue.Config{MaxCrashes: simCrashes})
	if err != nil {
		panic(err)
	}
	return q
}

// errorf notes what is wrong. Only the first counts: what comes after may follow from
// it. The gate is held.
func (s *sim) errorf(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf("at %v: ", time.Since(s.begin))+fmt.Sprintf(format, args...))
}

// alone does something while nobody has the gate.
func (s *sim) alone(f func()) {
	s.gate <- struct{}{}
	defer func() { <-s.gate }()
	f()
}

// call makes a call of the queue alone, lets the model follow it, and compares. After
// an error that leaves the outcome open either is right; after any other nothing may
// have happened.
func (s *sim) call(what string, verb func() error, follow func(m *simModel, snap *snapshot, now int64, err error)) error {
	s.gate <- struct{}{}
	defer func() { <-s.gate }()
	err := verb()
	if len(s.wrong) > 0 {
		return err // what differs from now on follows from that
	}
	now := time.Now().UnixMicro()
	snap := s.snapshot()
	s.tally["calls"]++
	s.tally["parked"] += len(snap.parked)
	if err != nil {
		differs := s.m.compare(snap, now)
		if differs == "" {
			return err
		}
		if !errors.Is(err, queue.ErrUnknownOutcome) {
			s.errorf("%s failed: %v, but: %s", what, err, differs)
			return err
		}
		s.tally["unknown"]++
		if what == "pop" || what == "settle" {
			s.tally["unknown "+what]++
		}
	}
	before := s.m
	s.m = before.clone()
	follow(s.m, snap, now, err)
	if differs := s.m.compare(snap, now); differs != "" {
		s.errorf("%s: %s", what, differs)
	}
	for _, wrong := range s.m.wrong {
		s.errorf("%s: %s", what, wrong)
	}
	s.m.wrong = nil
	return err
}

// play does what is planned, and compares after each step.
func (s *sim) play() {
	for _, step := range s.plan.steps {
		time.Sleep(time.Until(s.begin.Add(step.at)))
		s.do(step)
		synctest.Wait()
		_ = s.call("a look", func() error { return nil }, func(*simModel, *snapshot, int64, error) {})
		if s.over() {
			return
		}
	}
	time.Sleep(time.Until(s.begin.Add(simDay)))
}

// finish lets one good worker do what is left, and counts what has become of all.
func (s *sim) finish() {
	for who, w := range s.workers {
		s.links[who].set(false)
		s.links[who].next("", "")
		s.drain(w)
	}
	last := len(s.workers) - 1
	s.start(last, simCrew{concurrency: 4, lease: time.Minute, deaf: true})
	for range 100 {
		pass(10 * time.Minute)
		if s.over() || s.rests() {
			break
		}
	}
	s.drain(s.workers[last])
	s.waits.Wait()
	if s.over() {
		return
	}
	_ = s.call("the end", func() error { return nil }, func(m *simModel, snap *snapshot, _ int64, _ error) {
		if n := len(snap.due) + len(snap.parked) + len(snap.leases) + len(snap.turns) + len(snap.next) + len(snap.cancels); n > 0 {
			m.complain("%d are left: %+v", n, *snap)
		}
		for _, version := range slices.Sorted(maps.Keys(s.acked)) {
			if m.fates[version] == "" {
				m.complain("%s has been taken, and has no end", version)
			}
		}
	})
	for _, how := range s.m.fates {
		s.tally[how]++
	}
}

// over reports whether something went wrong.
func (s *sim) over() (over bool) {
	s.alone(func() { over = len(s.wrong) > 0 })
	return over
}

// rests reports whether all tasks that are there have ended.
func (s *sim) rests() bool {
	rests := true
	s.alone(func() {
		for _, t := range s.m.tasks {
			rests = rests && (t.state == queue.Dead || t.state == queue.Done)
		}
	})
	return rests
}

func (s *sim) do(step simStep) {
	s.alone(func() { s.tally[step.verb]++ })
	switch step.verb {
	case "enqueue":
		s.enqueue(step)
	case "cancel", "cancel run":
		s.cancel(step)
	case "reschedule":
		s.reschedule(step)
	case "revive":
		s.revive(step)
	case "wait":
		s.wait(step)
	case "start":
		s.start(step.who, step.crew)
	case "drain":
		w := s.workers[step.who]
		s.waits.Go(func() { s.drain(w) })
	case "crash":
		s.crash(step.who)
	case "reset":
		s.links[step.who].reset()
	case "lose", "cut":
		s.links[step.who].next(step.verb, step.of)
	case "outage":
		link := s.links[step.who]
		link.set(true)
		s.waits.Go(func() {
			time.Sleep(step.in)
			link.set(false)
		})
	}
}
