package worker_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

const simDay = 24 * time.Hour

// A simPlan is what happens in a simulation. It follows from the seed alone.
type simPlan struct {
	seed  uint64
	steps []simStep
}

// A simStep is one thing that happens. Verbs read the fields that they need.
type simStep struct {
	at   time.Duration
	verb string
	id   string
	who  int    // a worker, or the application if it is zero
	of   string // the verb whose script has a fault

	task     duly.Task
	in       time.Duration // the delay of a task, or how long a fault lasts
	conflict queue.Conflict
	acts     []simAct // of the task's runs, in their order; then they are done
	crew     simCrew
}

// A simAct is what a handler does.
type simAct struct {
	answer string        // ok, fail, panic, retry, snooze, bury or drop
	takes  time.Duration // before it answers
	in     time.Duration // what it asks for
	deaf   bool          // it ignores its context
}

// A simCrew is how a worker is made.
type simCrew struct {
	concurrency int
	lease       time.Duration
	deaf        bool // it hears no hints, and polls
}

func (a simAct) String() string {
	text := fmt.Sprintf("%s after %v", a.answer, a.takes)
	if a.in > 0 {
		text += fmt.Sprintf(" in %v", a.in)
	}
	if a.deaf {
		text += " deaf"
	}
	return text
}

func (p simPlan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "DULY_SIM_SEED=%d\n", p.seed)
	for _, s := range p.steps {
		fmt.Fprintf(&b, "%14v %s", s.at, s.verb)
		switch s.verb {
		case "enqueue":
			fmt.Fprintf(&b, " %s %s in %v %s key %q retain %v attempts %d timeout %v expires %v %v", s.id, s.task.Payload, s.in,
				s.conflict, s.task.LockKey, s.task.Retain, s.task.MaxAttempts, s.task.Timeout, !s.task.Expires.IsZero(), s.acts)
		case "start":
			fmt.Fprintf(&b, " worker %d %+v", s.who, s.crew)
		case "drain", "crash", "lose", "reset", "cut", "outage":
			fmt.Fprintf(&b, " %d %v %s", s.who, s.in, s.of)
		default:
			fmt.Fprintf(&b, " %s %v", s.id, s.in)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A simDraw draws a plan.
type simDraw struct {
	*rand.Rand
	plan simPlan
	next int // version of a task
}

// drawPlan draws some bursts of a few minutes, in each of which workers come and go,
// and steps that are close enough to meet.
func drawPlan(seed uint64) simPlan {
	d := simDraw{Rand: rand.New(rand.NewPCG(seed, 0xd017)), plan: simPlan{seed: seed}}
	for range 1 + d.IntN(2)*d.IntN(2) {
		begin := time.Duration(d.Int64N(int64(simDay - 2*time.Hour)))
		for who := range 1 + d.IntN(2) {
			d.session(begin, who+1)
		}
		for range 8 + d.IntN(6) {
			d.step(begin + d.upTo(9*time.Minute))
		}
	}
	slices.SortFunc(d.plan.steps, func(a, b simStep) int { return cmp.Compare(a.at, b.at) })
	return d.plan
}

// upTo draws a time that is no other: in ns, so that few things fall together.
func (d *simDraw) upTo(most time.Duration) time.Duration { return time.Duration(d.Int64N(int64(most))) }

func (d *simDraw) add(s simStep) { d.plan.steps = append(d.plan.steps, s) }

// session starts a worker, and often ends it; one that is there already is drained.
func (d *simDraw) session(begin time.Duration, who int) {
	d.add(simStep{at: begin + d.upTo(time.Minute), verb: "start", who: who, crew: simCrew{
		concurrency: 1 + d.IntN(3), lease: time.Minute + d.upTo(2*time.Minute).Truncate(time.Millisecond), deaf: d.IntN(2) == 0,
	}})
	for _, of := range []string{"settle", "pop"} {
		if d.IntN(2) == 0 {
			d.add(simStep{at: begin + time.Minute + d.upTo(5*time.Minute), verb: "lose", who: who, of: of})
		}
	}
	end := begin + 2*time.Minute + d.upTo(15*time.Minute)
	d.add(simStep{at: end, verb: pickOne(d, "drain", "crash"), who: who})
	if d.IntN(2) == 0 { // and another comes
		d.add(simStep{at: end + d.upTo(4*time.Minute), verb: "start", who: who, crew: simCrew{
			concurrency: 1 + d.IntN(2), lease: time.Minute + d.upTo(time.Minute).Truncate(time.Millisecond), deaf: true,
		}})
		d.add(simStep{at: end + 10*time.Minute + d.upTo(20*time.Minute), verb: "drain", who: who})
	}
}

func pickOne(d *simDraw, all ...string) string { return all[d.IntN(len(all))] }

func (d *simDraw) step(at time.Duration) {
	s := simStep{at: at, id: pickOne(d, "a", "b", "c", "d", "e"), who: d.IntN(3)}
	switch n := d.IntN(24); {
	case n < 11:
		d.enqueue(s)
		return
	case n == 11:
		s.verb = "cancel"
	case n < 15:
		s.verb = "cancel run"
	case n == 15:
		s.verb, s.in = "reschedule", d.delay()
	case n == 16:
		s.verb = "revive"
	case n == 17:
		s.verb, s.in = "wait", 20*time.Second+d.upTo(4*time.Minute)
	case n == 18:
		s.verb = "reset"
	case n < 22:
		s.verb = pickOne(d, "lose", "lose", "cut")
		if s.who > 0 {
			s.of = pickOne(d, "", "pop", "settle", "settle", "extend")
		}
	default:
		s.verb, s.in, s.who = "outage", d.upTo(4*time.Minute), 1+d.IntN(2)
	}
	d.add(s)
}

func (d *simDraw) delay() time.Duration {
	switch d.IntN(8) {
	case 0:
		return d.upTo(4 * time.Hour)
	case 1, 2, 3:
		return 0
	}
	return d.upTo(4 * time.Minute)
}

func (d *simDraw) enqueue(s simStep) {
	d.next++
	s.verb, s.in = "enqueue", d.delay()
	s.task = duly.Task{
		ID: s.id, Kind: "k", Payload: fmt.Appendf(nil, "v%d", d.next), LockKey: pickOne(d, "", "", "key", "key:2"),
		MaxAttempts: d.IntN(4), // zero is the worker's
	}
	s.conflict = queue.Conflict(pickOne(d, "keep", "replace", "replace", "earliest"))
	if d.IntN(3) == 0 {
		s.task.Retain = time.Minute + d.upTo(30*time.Minute)
	}
	if d.IntN(5) == 0 {
		s.task.Timeout = 30*time.Second + d.upTo(2*time.Minute)
	}
	if d.IntN(8) == 0 { // from the start of the day on; the simulation knows when that is
		s.task.Expires = time.Unix(0, 0).Add(s.at + s.in + d.upTo(3*time.Minute))
		if d.IntN(2) == 0 {
			s.task.OnExpiry = duly.Dropped
		}
	}
	for range d.IntN(4) {
		s.acts = append(s.acts, d.act())
	}
	d.add(s)
	if d.IntN(8) == 0 {
		d.add(simStep{at: s.at + d.upTo(time.Second), verb: "wait", id: s.id, in: 20*time.Second + d.upTo(4*time.Minute)})
	}
}

func (d *simDraw) act() simAct {
	a := simAct{answer: pickOne(d, "ok", "ok", "fail", "fail", "panic", "retry", "snooze", "bury", "drop"), deaf: d.IntN(4) == 0}
	switch d.IntN(4) {
	case 0:
	case 1:
		a.takes = d.upTo(10 * time.Minute)
	default:
		a.takes = d.upTo(2 * time.Minute)
	}
	if a.answer == "retry" || a.answer == "snooze" {
		a.in = d.upTo(5 * time.Minute)
	}
	return a
}
