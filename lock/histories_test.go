package lock_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// variants are the ways of playing; the histories of a run take turns. Where
// nobody waits and no answer is lost, every refusal is checked.
var variants = []habits{
	{Forgets: 0.05, Oversits: 0.05},
	{Forgets: 0.05, Oversits: 0.05, Waits: 0.5},
	{Forgets: 0.05, Oversits: 0.05, Faults: 0.15},
	{Forgets: 0.05, Oversits: 0.05, Faults: 0.05, Waits: 0.1},
}

// pollOften makes a history short.
var pollOften = lock.Config{PollMin: time.Millisecond, PollMax: 10 * time.Millisecond}

// A game makes histories of players on servers.
type game struct {
	seed    uint64
	players int // of a history
	servers []*redistest.Server
	open    func(nodes []redis.UniversalClient, cfg lock.Config) (*lock.Locker, error)
	faults  faults
	lag     longest // of a history
}

// history plays one, until its players have made enough calls and had some
// leases.
func (g *game) history(t *testing.T, i int) []op {
	t.Helper()
	const calls, leases, longest = 1000, 5, 10 * time.Second
	var pulses []*pulse
	for _, server := range g.servers {
		pulses = append(pulses, feel(t.Context(), server.Client()))
	}
	began := time.Now()
	var (
		mu      sync.Mutex
		ops     []op
		called  atomic.Int64
		granted atomic.Int64
		all     sync.WaitGroup
	)
	more := func() bool {
		return called.Add(1) <= calls || granted.Load() < leases && time.Since(began) < longest
	}
	log := func(o op) {
		if o.Verb == "acquire" && o.Answer == ok {
			granted.Add(1)
		}
		mu.Lock()
		defer mu.Unlock()
		ops = append(ops, o)
	}
	var wires []*wire
	for id := range g.players {
		p := &player{
			id: id + 1, name: nameOf(i), habits: variants[i%len(variants)], faults: &g.faults,
			rng: rand.New(rand.NewPCG(g.seed, uint64(i*g.players+id))),
			now: func(at time.Time) int64 { return int64(at.Sub(began)) }, log: log,
		}
		clients := p.connect(t, g)
		wires = append(wires, p.wires...)
		all.Go(func() {
			p.play(t.Context(), more)
			for _, client := range clients {
				_ = client.Close()
			}
		})
	}
	all.Wait()
	l := lag(slowestOf(wires), pulses)
	g.lag.note(l)
	return measured(ops, l)
}

func nameOf(history int) string { return fmt.Sprint("history ", history) }

// connect gives a player its locker.
func (p *player) connect(t *testing.T, g *game) (clients []redis.UniversalClient) {
	t.Helper()
	for _, server := range g.servers {
		w := new(wire)
		p.wires = append(p.wires, w)
		clients = append(clients, w.client(server.Socket))
	}
	locker, err := g.open(clients, pollOften)
	if err != nil {
		t.Error(err)
	}
	p.locker = locker
	return clients
}

// newGame prints the seed, by which the same calls are made again, though their
// timing is the machine's.
func newGame(t *testing.T, servers, players int) *game {
	t.Helper()
	g := &game{seed: uint64(number(t, "DULY_SEED", int(time.Now().UnixNano()>>10))), players: players}
	t.Logf("DULY_SEED=%d", g.seed)
	for range servers {
		g.servers = append(g.servers, redistest.Start(t))
	}
	g.open = func(nodes []redis.UniversalClient, cfg lock.Config) (*lock.Locker, error) {
		return lock.New(nodes[0], cfg)
	}
	return g
}

// number reads one from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text, set := os.LookupEnv(name)
	if !set {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// play makes n histories, some at once: players wait most of the time.
func (g *game) play(t *testing.T, n, atOnce int) [][]op {
	t.Helper()
	histories := make([][]op, n)
	inParallel(n, atOnce, func(i int) { histories[i] = g.history(t, i) })
	return histories
}

func inParallel(n, atOnce int, do func(i int)) {
	var workers sync.WaitGroup
	var last atomic.Int64
	for range atOnce {
		workers.Go(func() {
			for i := int(last.Add(1)) - 1; i < n; i = int(last.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}

// Exclusion and rising fences, by a model checker: it finds an order in which
// every answer is true.
func TestHistoriesAreLegal(t *testing.T) {
	g, began := newGame(t, 1, 6), time.Now()
	histories := g.play(t, number(t, "DULY_HISTORIES", 100), 8)
	t.Logf("played in %v: %v", time.Since(began), g.summary(histories))
	g.judge(t, histories)
}

// judge checks histories. To show that it would find wrong answers, it plants
// some in each.
func (g *game) judge(t *testing.T, histories [][]op) {
	t.Helper()
	began := time.Now()
	inParallel(len(histories), 2, func(i int) {
		what := fmt.Sprintf("history %d of seed %d", i, g.seed)
		check(t, what+" as a mutex", mutex, histories[i])
		check(t, what+" as a fenced mutex", fenced, histories[i])
	})
	t.Logf("checked in %v", time.Since(began))
	if t.Failed() {
		return
	}
	began = time.Now()
	var planted atomic.Int64
	inParallel(len(histories), 2, func(i int) {
		rng, ops := rand.New(rand.NewPCG(g.seed, uint64(i))), histories[i]
		if len(plantable(ops)) < 2 {
			return // the machine was too busy for leases
		}
		planted.Add(3)
		second, fence := plantHolder(rng, ops), plantFence(rng, ops)
		for what, found := range map[string]bool{
			"second holder":                verdict(mutex, second) == porcupine.Illegal,
			"second holder with a fence":   verdict(fenced, second) == porcupine.Illegal,
			"fence that does not rise":     verdict(fenced, fence) == porcupine.Illegal,
			"fence, which a mutex has not": verdict(mutex, fence) == porcupine.Ok,
		} {
			if !found {
				t.Errorf("history %d of seed %d: planted %s: wrong verdict", i, g.seed, what)
			}
		}
	})
	t.Logf("%d planted violations found in %v", planted.Load(), time.Since(began))
	if planted.Load() == 0 {
		t.Error("no history has leases to plant a violation in")
	}
}

// plantable are the claims that last long enough for another inside.
func plantable(ops []op) []claim {
	return slices.DeleteFunc(claims(ops), func(c claim) bool { return c.to-c.from < int64(time.Millisecond) })
}

// plantHolder adds a lease that is granted while another is held.
func plantHolder(rng *rand.Rand, ops []op) []op {
	all := plantable(ops)
	c := all[rng.IntN(len(all))]
	third := (c.to - c.from) / 3
	return append(slices.Clone(ops), op{
		Client: 0, Verb: "acquire", Lease: 1, Answer: ok, Call: c.from + third, Return: c.to - third,
		Fence: c.acquired.Fence + 1, Until: c.to - third + 1, TTL: c.acquired.TTL,
	})
}

// plantFence gives a lease the fence of one that ended before.
func plantFence(rng *rand.Rand, ops []op) []op {
	all := plantable(ops)
	i := 1 + rng.IntN(len(all)-1)
	ops = slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return o.Verb == "again" })
	for j, o := range ops {
		if o.Lease == all[i].acquired.Lease && o.Verb == "acquire" {
			ops[j].Fence = all[i-1].acquired.Fence
		}
	}
	return ops
}

// summary tells what the histories are made of.
func (g *game) summary(histories [][]op) string {
	var (
		answers = make(map[string]int)
		all     int
		checked int
		over    int
	)
	for _, ops := range histories {
		all += len(ops)
		for _, o := range ops {
			answers[o.Verb+" "+string(o.Answer)]++
		}
		for _, c := range claims(ops) {
			if c.to == c.until {
				over++
			}
		}
		for _, s := range steps(ops) {
			if s.Input.(step).kind == refused {
				checked++
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d histories, %d operations, %d leases expired, %d refusals checked, lag %v;",
		len(histories), all, over, checked, g.lag.load().Round(time.Millisecond))
	for i, kind := range kindsOfFault {
		fmt.Fprintf(&b, " %d %s,", g.faults[i].Load(), kind)
	}
	for _, answer := range slices.Sorted(maps.Keys(answers)) {
		fmt.Fprintf(&b, "\n%s: %d", answer, answers[answer])
	}
	return b.String()
}
