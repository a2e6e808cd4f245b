package lock_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A wire is what a player has to a server: a link that can fail, and a look at
// what goes over it.
type wire struct {
	hooks
	link link

	sent, unanswered atomic.Int64 // scripts
	underWay         atomic.Int64 // scripts
	slowest          longest      // script
	repeats          atomic.Int64 // the number of a call; its next script is sent twice
	repeated         atomic.Pointer[repetition]

	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu: those that are open
}

// A wired connection is forgotten when it is closed.
type wired struct {
	net.Conn
	wire *wire
}

func (c wired) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c.Conn)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}

// A repetition is what the first of two like requests was answered. The caller
// was told the answer to the second.
type repetition struct {
	call  int64
	fence uint64
}

// client opens a client that gives up on an answer soon, so that a history has
// many that are unknown.
func (w *wire) client(socket string) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: socket, Dialer: w.dial, DialerRetries: 1, MaintNotificationsConfig: plain,
		ReadTimeout: 30 * time.Millisecond, WriteTimeout: 30 * time.Millisecond, PoolSize: 1000, // after so many refused connections it tries none for a second
	})
	client.AddHook(w)
	return client
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := w.link.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conns == nil {
		w.conns = make(map[net.Conn]struct{})
	}
	w.conns[conn] = struct{}{}
	return wired{conn, w}, nil
}

// reset ends all connections, whatever is under way on them.
func (w *wire) reset() {
	w.mu.Lock()
	conns := w.conns
	w.conns = nil
	w.mu.Unlock()
	for conn := range conns { // a Close waits until nobody reads
		_ = conn.Close()
	}
}

// ProcessHook counts scripts, and sends one twice if it is to.
func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return next(ctx, cmd)
		}
		w.sent.Add(1)
		w.underWay.Add(1)
		began := time.Now()
		defer func() {
			w.slowest.note(time.Since(began))
			w.underWay.Add(-1)
		}()
		err := next(ctx, cmd)
		if fence, granted := fenceIn(cmd); err == nil && granted {
			if call := w.repeats.Swap(0); call != 0 {
				err = next(ctx, cmd)
				w.note(err, repetition{call, fence}, time.Since(began))
			}
		}
		var refused redis.Error
		if err != nil && !errors.As(err, &refused) {
			w.unanswered.Add(1)
		}
		return err
	}
}

// slowestOf waits for all scripts, and returns how long the slowest took.
func slowestOf(wires []*wire) (slowest time.Duration) {
	for _, w := range wires {
		w.untilUnderWay(0)
		slowest = max(slowest, w.slowest.load())
	}
	return slowest
}

// untilUnderWay waits until so few scripts are under way.
func (w *wire) untilUnderWay(most int64) {
	for w.underWay.Load() > most {
		<-time.After(time.Millisecond)
	}
}

// note keeps a repetition if the two requests were so close that the lock cannot
// have come to an end between them.
func (w *wire) note(err error, r repetition, took time.Duration) {
	switch {
	case err != nil:
	case took < shortestTTL/2:
		w.repeated.Store(&r)
	default:
		w.unanswered.Add(1)
	}
}

// fenceIn returns the fence in an answer that grants the lock.
func fenceIn(cmd redis.Cmder) (uint64, bool) {
	answered, _ := cmd.(interface{ Val() any })
	if answered == nil {
		return 0, false
	}
	words, _ := answered.Val().([]any)
	if len(words) < 2 || words[0] != "ok" {
		return 0, false
	}
	digits, _ := words[1].(string)
	fence, err := strconv.ParseUint(digits, 10, 64)
	return fence, err == nil
}

// traffic is how many scripts a player has sent, and how many of them were not
// answered.
type traffic struct{ sent, unanswered int64 }

func (p *player) traffic() (sum traffic) {
	for _, w := range p.wires {
		sum.sent += w.sent.Load()
		sum.unanswered += w.unanswered.Load()
	}
	return sum
}

// faults counts what was done to the wires of players, by kind.
type faults [6]atomic.Int64

var kindsOfFault = [len(faults{})]string{"lost replies", "delays", "deaf spells", "mute spells", "resets", "repeats"}

// trouble makes a wire fail for the next call, or for a while.
func (p *player) trouble() {
	if !p.chance(p.habits.Faults) {
		return
	}
	w := p.wires[p.rng.IntN(len(p.wires))]
	spell := time.Millisecond + p.upTo(80*time.Millisecond)
	kind := p.rng.IntN(len(kindsOfFault))
	switch kind {
	case 0:
		w.link.lose(nil)
	case 1:
		w.link.delay(spell / 2)
	case 2:
		w.link.deaf.Store(true)
		time.AfterFunc(spell, w.link.heal)
	case 3:
		w.link.mute.Store(true)
		time.AfterFunc(spell, w.link.heal)
	case 4:
		w.link.refuse.Store(true)
		time.AfterFunc(p.upTo(300*time.Microsecond), w.reset) // while a request is under way
		time.AfterFunc(spell/4, func() { w.link.refuse.Store(false) })
	case 5:
		w.repeats.Store(p.calls)
	}
	p.faults[kind].Add(1)
}
