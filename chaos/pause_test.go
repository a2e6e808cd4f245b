package chaos

import (
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock/redistest"
)

// Workers hang for longer than their lease and go on, while others run their tasks.
func TestPausedWorkersAckNothingTwice(t *testing.T) {
	const lease = 250 * time.Millisecond
	r := begin(t, "workers paused")
	pauses := pick(12, 90, 3000)
	server := redistest.Start(t)
	c := r.assemble(process{
		Redis: place{Socket: server.Socket}, Slots: 6, Lease: lease, MaxCrashes: 1_000_000, Hesitate: 30 * time.Millisecond,
	})
	ts := newTries()
	rest := []*hand{c.mustHire(), c.mustHire()}
	paused := []*hand{c.mustHire(), c.mustHire(), c.mustHire()}
	plans := make([]*rand.Rand, len(paused))
	for i := range plans {
		plans[i] = rand.New(rand.NewPCG(r.Seed, uint64(i+1)))
	}
	ms := func(rnd *rand.Rand, from, to int) time.Duration {
		return time.Duration(from+rnd.IntN(to-from)) * time.Millisecond
	}
	moments := make([][]int64, len(paused)) // when each went on
	c.during(ts, 12*time.Millisecond, r.lasting(1500*time.Millisecond), func() {
		var all sync.WaitGroup
		defer all.Wait()
		for i, h := range paused {
			all.Go(func() {
				for range pauses / len(paused) {
					time.Sleep(ms(plans[i], 150, 500)) // more than what a handler has to hear of it
					must(t, h.signal(syscall.SIGSTOP))
					time.Sleep(lease + ms(plans[i], 50, 600))
					moments[i] = append(moments[i], time.Now().UnixMicro())
					must(t, h.signal(syscall.SIGCONT))
					r.fault("pause past the lease", 1)
				}
			})
		}
	})
	woken := make(map[*hand][]int64)
	for i, h := range paused {
		woken[h] = moments[i]
	}
	c.drain(1, time.Minute)
	for _, h := range append(rest, paused...) {
		if _, status := h.stop(); status != 0 {
			r.broken("a worker ended with status %d", status)
		}
	}

	runs := c.runs()
	total := ts.count(runs, once)
	r.clean(total)
	r.rising(runs)
	r.promise(total.Acked == total.Attempts, "%d of %d tasks were acknowledged, and Redis was there all the time", total.Acked, total.Attempts)
	c.overtakenKnow(runs, woken)
}

// overtakenKnow promises that a run whose task was handed to another meanwhile has
// heard of it: the context of its handler has ended a tenth of a second after its worker
// went on. What is settled before that is refused. None of them ends its task.
func (c *crew) overtakenKnow(runs []run, woken map[*hand][]int64) {
	c.t.Helper()
	type attempt struct {
		id    string
		fence uint64
	}
	acked, denials, next := make(map[attempt]bool), make(map[attempt]bool), make(map[attempt]int64)
	for _, run := range runs {
		if run.Acked {
			acked[attempt{run.ID, run.Fence}] = true
		}
	}
	for id, rs := range begun(runs) {
		for i := 1; i < len(rs); i++ {
			next[attempt{id, rs[i-1].Fence}] = rs[i].Popped
		}
	}
	events := c.events()
	for _, e := range events {
		if e.What == denied {
			denials[attempt{e.ID, e.Fence}] = true
		}
	}
	c.measure("settlements refused as late", float64(len(denials)))
	woke, ended, refusals, silent, late, later, deaf := 0, 0, 0, 0, 0, 0, 0
	for _, e := range events {
		this := attempt{e.ID, e.Fence}
		popped, overtaken := next[this]
		if e.What != over || !overtaken || e.At <= popped {
			continue
		}
		woke++
		switch {
		case e.Ended:
			ended++
		case denials[this]:
			refusals++
		default:
			silent++ // and the worker knew by itself, without asking
		}
		if acked[this] {
			late++
		}
		i, _ := slices.BinarySearch(woken[e.by], popped)
		if i < len(woken[e.by]) && e.At > woken[e.by][i]+100_000 {
			later++
			if !e.Ended {
				deaf++
			}
		}
	}
	c.promise(woke > 0, "no handler was overtaken, so nothing was shown")
	c.promise(len(denials) > 0 || testing.Short(), "no settlement was refused, so nothing was shown of that")
	c.promise(deaf == 0, "%d of %d handlers had a context when their worker had gone on for 100 ms without its lease", deaf, later)
	c.measure("of these, looked 100 ms after their worker went on", float64(later))
	c.promise(late == 0, "%d handlers ended their task after another had been given it", late)
	c.measure("handlers overtaken", float64(woke))
	c.measure("of these, context had ended", float64(ended))
	c.measure("of these, only the settlement was refused", float64(refusals))
	c.measure("of these, not settled at all", float64(silent))
}
