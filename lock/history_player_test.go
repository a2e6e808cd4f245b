package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dulyhq/duly/lock"
)

// A player is a client that takes and leaves the lock of one name, as its seed
// has it, and writes down what it was told.
type player struct {
	id     int
	locker *lock.Locker
	name   string
	wires  []*wire // to each of its servers
	rng    *rand.Rand
	habits habits
	log    func(op)
	now    func(time.Time) int64
	leases int
	calls  int64
	faults *faults // counts, if not nil
}

// habits are the shares, from 0 to 1, of what a player may do.
type habits struct {
	Waits    float64 // of acquisitions that wait
	Faults   float64 // of calls on a bad network
	Forgets  float64 // of leases that are never released
	Oversits float64 // of leases that are held past their end
}

// Bounds of what a player chooses at random.
const (
	shortestTTL = 30 * time.Millisecond
	longestTTL  = 120 * time.Millisecond
	longestHold = 8 * time.Millisecond
)

// For how long a call may have an effect after its return. Its last request can
// be under way then: the lag of the history tells for how long. A waiter that
// gives up may keep its place, if what it sends for that is lost, as long as its
// process has others.
const (
	unmeasured = -1
	lateWaiter = time.Hour
)

// atMostUnderWay is how many scripts a player may have under way when it makes a
// call: without a limit a slow machine would become slower and slower.
const atMostUnderWay = 4

// play goes on while there is more to do.
func (p *player) play(ctx context.Context, more func() bool) {
	for more() {
		lease, id := p.acquire(ctx)
		if lease == nil {
			p.dwell(longestHold)
			continue
		}
		p.dwell(longestHold)
		for p.chance(0.3) && more() {
			p.extend(ctx, lease, id)
			p.dwell(longestHold)
		}
		switch {
		case p.chance(p.habits.Forgets):
			continue
		case p.chance(p.habits.Oversits):
			<-lease.Done()
			p.dwell(longestHold)
		}
		for more() && p.release(ctx, lease, id) == unknown && p.chance(0.5) { // or it is left to its TTL
			p.dwell(longestHold)
		}
	}
}

func (p *player) acquire(ctx context.Context) (*lock.Lease, int) {
	p.leases++
	o := op{Client: p.id, Verb: "acquire", Lease: p.id<<24 | p.leases, TTL: int64(p.ttl())}
	acquire, waits := p.locker.TryAcquire, p.chance(p.habits.Waits)
	if waits {
		acquire = p.locker.Acquire
	}
	ctx, cancel := p.bounded(ctx, waits)
	defer cancel()
	var lease *lock.Lease
	p.call(&o, func() (err error) {
		lease, err = acquire(ctx, p.name, time.Duration(o.TTL))
		return err
	})
	if lease == nil && waits {
		o.Late = int64(lateWaiter)
	}
	if lease != nil {
		o.Fence, o.Until = lease.Fence(), p.now(lease.Until())
	}
	p.note(o)
	return lease, o.Lease
}

func (p *player) extend(ctx context.Context, lease *lock.Lease, id int) {
	o := op{Client: p.id, Verb: "extend", Lease: id, TTL: int64(p.ttl())}
	ctx, cancel := p.bounded(ctx, false)
	defer cancel()
	p.call(&o, func() error { return lease.Extend(ctx, time.Duration(o.TTL)) })
	if o.Answer == ok {
		o.Until = p.now(lease.Until())
	}
	p.note(o)
}

func (p *player) release(ctx context.Context, lease *lock.Lease, id int) answer {
	o := op{Client: p.id, Verb: "release", Lease: id}
	ctx, cancel := p.bounded(ctx, false)
	defer cancel()
	p.call(&o, func() error { return lease.Release(ctx) })
	p.note(o)
	return o.Answer
}

// call makes a call and takes its time, on a network that may be bad.
func (p *player) call(o *op, do func() error) {
	for _, w := range p.wires {
		w.untilUnderWay(atMostUnderWay)
	}
	p.calls++
	p.trouble()
	before := p.traffic()
	o.Call = p.now(time.Now())
	err := do()
	o.Return = p.now(time.Now())
	o.Answer = answerFor(err)
	after := p.traffic()
	o.Quorum = len(p.wires) > 1
	if o.Answer != ok && o.Answer != held && o.Answer != lost ||
		after.unanswered > before.unanswered || after.sent > before.sent+int64(len(p.wires)) {
		o.Late = unmeasured
	}
}

// note writes an op down, and what its request was answered before if it was
// sent twice.
func (p *player) note(o op) {
	p.log(o)
	for _, w := range p.wires {
		w.repeats.Store(0)
		if r := w.repeated.Swap(nil); r != nil && r.call == p.calls && (o.Answer == ok || o.Answer == held) && !o.Quorum {
			p.log(op{Client: o.Client, Verb: "again", Lease: o.Lease, Call: o.Call, Return: o.Return, Answer: ok, Fence: r.fence})
		}
	}
}

func answerFor(err error) answer {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, lock.ErrUnknownOutcome):
		return unknown
	case errors.Is(err, lock.ErrHeld):
		return held
	case errors.Is(err, lock.ErrExpired):
		return expired
	case errors.Is(err, lock.ErrLost):
		return lost
	}
	return failed
}

// bounded is a context for a call: short for one that waits, and too short now
// and then where there are faults.
func (p *player) bounded(ctx context.Context, waits bool) (context.Context, context.CancelFunc) {
	switch {
	case p.chance(p.habits.Faults / 2):
		return context.WithTimeout(ctx, p.upTo(2*time.Millisecond))
	case waits:
		return context.WithTimeout(ctx, 5*time.Millisecond+p.upTo(60*time.Millisecond))
	}
	return context.WithTimeout(ctx, 2*longestTTL)
}

func (p *player) chance(share float64) bool { return p.rng.Float64() < share }

func (p *player) upTo(d time.Duration) time.Duration { return time.Duration(p.rng.Int64N(int64(d))) }

func (p *player) ttl() time.Duration { return shortestTTL + p.upTo(longestTTL-shortestTTL) }

// dwell is what a holder does with the lock, or another without it.
func (p *player) dwell(longest time.Duration) { <-time.After(p.upTo(longest)) }
