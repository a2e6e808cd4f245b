package lock_test

import (
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// The lag of a history is for how long after its return a call may have an
// effect. A busy machine has no bound for it, and to guess one is to find a lock
// guilty of what the machine did. So it is measured:
//
//   - Nothing is sent for a call that has returned, but for what is on its way
//     through the client. That takes no longer than the slowest script took.
//   - A server carries out all that has arrived before it waits for more. What
//     has arrived before a ping is sent is done when the next one is answered.
//     From any moment, that is three beats: the rest of one, and two.
func lag(slowest time.Duration, pulses []*pulse) time.Duration {
	var beat longest
	for _, p := range pulses {
		beat.note(p.longestBeat())
	}
	return slowest + 3*beat.load()
}

// measured fills in for how long calls may have had an effect.
func measured(ops []op, lag time.Duration) []op {
	for i := range ops {
		if ops[i].Late == unmeasured {
			ops[i].Late = int64(lag)
		}
	}
	return ops
}

// longest is the longest of some durations.
type longest struct{ ns atomic.Int64 }

func (l *longest) load() time.Duration { return time.Duration(l.ns.Load()) }

func (l *longest) note(d time.Duration) {
	for old := l.ns.Load(); int64(d) > old && !l.ns.CompareAndSwap(old, int64(d)); old = l.ns.Load() {
	}
}

// A pulse is a server's: how long it takes from one answer to the next.
type pulse struct {
	stop context.CancelFunc
	done chan struct{}
	beat longest
}

// rest is that of a pulse between two pings.
const rest = 20 * time.Millisecond

// feel takes a pulse, until it is asked for. A server that is down for a while
// has one long beat. It closes the client.
func feel(ctx context.Context, client *redis.Client) *pulse {
	ctx, stop := context.WithCancel(ctx)
	p := &pulse{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		last := time.Now()
		for ended := false; !ended; {
			select {
			case <-ctx.Done():
				ended = true
			case <-time.After(rest):
			}
			answered := client.Ping(context.WithoutCancel(ctx)).Err() == nil
			now := time.Now()
			p.beat.note(now.Sub(last)) // also if it goes on
			if answered {
				last = now
			}
		}
		_ = client.Close()
	}()
	return p
}

func (p *pulse) longestBeat() time.Duration {
	p.stop()
	<-p.done
	return p.beat.load()
}

// A server that hangs carries out a request when its client has long given up.
// Who is refused for that was told the truth.
func TestRequestOfAHungServerIsInTheLag(t *testing.T) {
	t.Parallel()
	const ttl, hangs = 100 * time.Millisecond, 500 * time.Millisecond
	server := redistest.Start(t)
	w, other := new(wire), new(wire)
	first, err := lock.New(w.client(server.Socket), pollOften)
	must(t, err)
	second, err := lock.New(other.client(server.Socket), pollOften)
	must(t, err)
	try := func(began time.Time, locker *lock.Locker, id int, late int64, patience time.Duration) op {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		o := op{Client: id, Verb: "acquire", Lease: id, TTL: int64(ttl), Late: late, Call: int64(time.Since(began))}
		_, err := locker.TryAcquire(ctx, "a", ttl)
		o.Return, o.Answer = int64(time.Since(began)), answerFor(err)
		return o
	}
	_, err = first.TryAcquire(t.Context(), "warm", ttl) // the server knows the script, and the client a connection
	must(t, err)
	for range 20 { // a slow machine asks when the late one is over
		began, p := time.Now(), feel(t.Context(), server.Client())
		server.Signal(syscall.SIGSTOP)
		w.link.afterScripts(2, func() { w.link.deaf.Store(true) }) // what would take it back
		ops := []op{try(began, first, 1, unmeasured, 10*time.Millisecond)}
		<-time.After(hangs)
		server.Signal(syscall.SIGCONT)
		ops = append(ops, try(began, second, 2, 0, time.Second))
		slowest := slowestOf([]*wire{w})
		w.link.heal()
		bound := lag(slowest, []*pulse{p})
		if ops[0].Answer != unknown || ops[1].Answer != held {
			continue
		}
		if got := verdict(mutex, measured(slices.Clone(ops), bound)); got != porcupine.Ok {
			t.Errorf("with the lag of %v that was measured: %s", bound, got)
		}
		if got := verdict(mutex, measured(ops, hangs/5)); got != porcupine.Illegal {
			t.Errorf("with a lag that does not count the server's: %s", got)
		}
		return
	}
	t.Error("the story is not told: no request was late")
}
