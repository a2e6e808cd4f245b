package lock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history is what clients asked of the lock of one name and what they were
// told. It is legal if there is one order of all that happened to the lock in
// which each answer is true and each event lies within its time: porcupine looks
// for that order. This file says what may be told and what it means.

// An op is a call of a client, with its answer. Times are in ns by one clock.
type op struct {
	Client       int
	Verb         string // "acquire", "extend", "release", or "again": what the same request was told before
	Lease        int    // the lease, or the attempt to get one
	Call, Return int64
	Answer       answer
	TTL          int64 // asked for, ns
	Fence        uint64
	Until        int64 // of the lease, after an ok; else 0

	// Late, if not 0, says that not all of the call is in its answer, and for
	// how long after its return it may have an effect, ns, or that this is yet
	// to be measured. A request was not answered and may be under way, or it
	// waited and may have been given the lock, and lost it, before it looked.
	Late int64

	// Quorum: its server was a quorum, of which a minority that another has is
	// enough to refuse, and to say that a lease is lost.
	Quorum bool
}

type answer string

const (
	ok      answer = "ok"
	held    answer = "held"    // ErrHeld
	expired answer = "expired" // ErrExpired
	lost    answer = "lost"    // ErrLost
	unknown answer = "unknown" // ErrUnknownOutcome
	failed  answer = "failed"  // nothing was done
)

// A step is an event at the lock, or what an answer claims about it.
type step struct {
	kind  kindOfStep
	lease int
	fence uint64
}

type kindOfStep string

const (
	take    kindOfStep = "take"    // the lock was free and became the lease's
	again   kindOfStep = "again"   // it was the lease's, with this fence
	still   kindOfStep = "still"   // it was the lease's
	end     kindOfStep = "end"     // it was the lease's and became free
	refused kindOfStep = "refused" // it was somebody's
	gone    kindOfStep = "gone"    // it was not the lease's
	foreign kindOfStep = "foreign" // it was somebody else's
)

// state is that of the lock: who has it, 0 for nobody, and the last fence.
type state struct {
	owner int
	fence uint64
}

// next is the mutex: whether a step is possible, and what follows from it.
func (s state) next(do step) (state, bool) {
	switch do.kind {
	case take:
		return state{do.lease, do.fence}, s.owner == 0
	case end:
		return state{0, s.fence}, s.owner == do.lease
	case again, still:
		return s, s.owner == do.lease
	case refused:
		return s, s.owner != 0
	case gone:
		return s, s.owner != do.lease
	case foreign:
		return s, s.owner != 0 && s.owner != do.lease
	}
	return s, false
}

// risen is what the fenced mutex adds: fences rise with every acquisition, and
// who asks again while holding the lock is told the same one.
func (s state) risen(do step) bool {
	return do.kind == take && do.fence > s.fence || do.kind == again && do.fence == s.fence ||
		do.kind != take && do.kind != again
}

var (
	mutex  = model(func(state, step) bool { return true })
	fenced = model(state.risen)
)

func model(also func(state, step) bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(from, input, _ any) (bool, any) {
			s, do := from.(state), input.(step)
			to, possible := s.next(do)
			return possible && also(s, do), to
		},
		DescribeOperation: func(input, _ any) string {
			do := input.(step)
			return fmt.Sprintf("%s %x #%d", do.kind, do.lease, do.fence)
		},
		DescribeState: func(s any) string { return fmt.Sprintf("%x #%d", s.(state).owner, s.(state).fence) },
	}
}

// over is when the lock is free again of what a call did to it, at the latest:
// Redis counts its TTL in ms.
func (o op) over() int64 { return o.Return + o.TTL + o.Late + int64(10*time.Millisecond) }

// steps turns answers into steps, each with the time in which it must lie.
//
// A lease that was acknowledged takes the lock once, during its acquisition, and
// ends once. That end is spontaneous, as a TTL's is: it can lie anywhere from the
// end of the claim (its Until, or the call of its first release) to when its key
// must be gone. So two claims that overlap have no legal order, and nor has a key
// that outlives its TTL, if another is refused for it.
//
// An acquisition of which the answer was lost could be modelled by a take and an
// end that may or may not have happened. But such a holder makes no claim; all
// that it explains are refusals of others. So these are dropped instead, which
// asks less of the search and nothing less of the leases.
func steps(ops []op) []porcupine.Operation {
	var all []porcupine.Operation
	add := func(o op, kind kindOfStep, from, to int64) {
		all = append(all, porcupine.Operation{
			ClientId: o.Client, Input: step{kind, o.Lease, o.Fence}, Call: from, Return: max(from, to),
		})
	}
	unseen := hidden(ops)
	told := make(map[int]bool) // leases that know of their loss
	for _, o := range ops {
		switch {
		case o.Verb == "acquire" && o.Answer == ok:
			add(o, take, o.Call, o.Return)
		case o.Verb == "again":
			add(o, again, o.Call, o.Return)
		case o.Verb == "extend" && o.Answer == ok:
			add(o, still, o.Call, o.Return)
		case o.Answer == held && !excused(o, unseen):
			add(o, refused, o.Call, o.Return)
		case o.Answer == lost && !told[o.Lease] && !excused(o, unseen):
			add(o, foreign, o.Call, o.Return)
		case o.Answer == lost, o.Verb == "release" && (o.Answer == ok || o.Answer == expired):
			add(o, gone, o.Call, o.Return)
		}
		told[o.Lease] = told[o.Lease] || o.Answer == lost
	}
	for _, c := range claims(ops) {
		add(c.acquired, end, c.to, c.gone)
		if first := c.released; first.Answer == ok && first.Call > c.until {
			add(first, still, first.Call, first.Return) // late, and not told so
		}
	}
	return all
}

// excused reports whether what an op was told of another needs no holder that is
// seen: one may have had the lock unseen.
func excused(o op, unseen []op) bool {
	if o.Quorum {
		return true
	}
	for _, other := range unseen {
		if other.Lease != o.Lease && other.Call <= o.Return && other.over() >= o.Call {
			return true
		}
	}
	return false
}

// hidden are the acquisitions that may have held the lock unseen.
func hidden(ops []op) (unseen []op) {
	for _, o := range ops {
		if o.Verb == "acquire" && o.Late > 0 {
			unseen = append(unseen, o)
		}
	}
	return unseen
}

// A claim is the time in which a lease excludes all others: from the return of
// its acquisition to its Until, or to the call of its first release.
type claim struct {
	acquired, released op
	from, until, to    int64
	gone               int64 // when its key is gone, at the latest
}

// claims returns those of the acknowledged leases, in the order of ops.
func claims(ops []op) []claim {
	index, all := make(map[int]int), []claim(nil)
	for _, o := range ops {
		if o.Verb == "acquire" && o.Answer == ok {
			index[o.Lease] = len(all)
			all = append(all, claim{acquired: o, from: o.Return})
		}
		i, acknowledged := index[o.Lease]
		if !acknowledged {
			continue
		}
		c := &all[i]
		switch o.Verb {
		case "acquire", "extend":
			c.gone = max(c.gone, o.over())
			c.until = max(c.until, o.Until)
			c.to = c.until
		case "release":
			c.to = min(c.to, o.Call)
			if c.released.Verb == "" {
				c.released = o
			}
		}
	}
	return all
}

func verdict(m porcupine.Model, ops []op) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(m, steps(ops), time.Minute)
}

// check fails the test unless a history is legal, and leaves a picture of one
// that is not.
func check(t *testing.T, what string, m porcupine.Model, ops []op) {
	t.Helper()
	result := verdict(m, ops)
	if result == porcupine.Ok {
		return
	}
	_, info := porcupine.CheckOperationsVerbose(m, steps(ops), 10*time.Second)
	path := filepath.Join(os.TempDir(), fmt.Sprintf("duly-history-%d.html", time.Now().UnixNano()))
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		path = err.Error()
	}
	t.Errorf("%s: %s; see %s", what, result, path)
}
