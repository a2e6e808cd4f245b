package lock_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// What a waiter of a dead process costs those behind it, how long its process
// counts as alive, and how long a waiter relies on what it hears at most.
const (
	claimTTL = time.Second
	alive    = 10 * time.Second
	look     = 4 * time.Second
	slight   = 20 * time.Millisecond // looks come a few ms after what they are for
)

// another returns a locker of another process in virtual time, on a link and a
// client of its own. End it before the bubble does.
func another(t *testing.T, probe *redis.Client, cfg lock.Config, wrap func(net.Conn) net.Conn) (*lock.Locker, *link, *redis.Client) {
	t.Helper()
	l, opts := new(link), *probe.Options()
	dial := l.over(opts.Dialer)
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil && wrap != nil {
			conn = wrap(conn)
		}
		return conn, err
	}
	opts.MaxRetries, opts.ReadTimeout, opts.WriteTimeout = -1, -1, -1
	client := redis.NewClient(&opts)
	cfg.Prefix = "{v}:"
	locker, err := lock.New(client, cfg)
	must(t, err)
	return locker, l, client
}

// hush is a hook that makes scripts publish nothing.
type hush struct{ hooks }

func (hush) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		for i, arg := range cmd.Args() {
			if arg == "PUBLISH" {
				cmd.Args()[i] = ""
			}
		}
		return next(ctx, cmd)
	}
}

// die makes a process vanish: nothing of it arrives any more, nor does it hear.
func die(l *link) {
	l.deaf.Store(true)
	l.mute.Store(true)
}

// A crowd is waiters in line behind a lock's holder.
type crowd struct {
	turns  chan turn
	count  int
	cancel context.CancelFunc
	ctx    context.Context
}

func (c *crowd) join(locker *lock.Locker, ttl time.Duration) {
	c.count++
	place := c.count
	go func() {
		lease, err := locker.Acquire(c.ctx, "a", ttl)
		c.turns <- turn{place, lease, err}
	}()
	time.Sleep(time.Second) // by then it is in line
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{turns: make(chan turn, 100)}
	c.ctx, c.cancel = context.WithCancel(t.Context())
	return c
}

// leave has all waiters give up that have had no turn.
func (c *crowd) leave(had int) {
	c.cancel()
	for range c.count - had {
		<-c.turns
	}
}

func TestDeadWaitersCostAClaimEach(t *testing.T) {
	t.Parallel()
	for story, test := range map[string]struct{ ago, most time.Duration }{
		"they have just died":          {0, 3*(claimTTL+slight) + slight},
		"they died a while ago":        {alive + look, slight},
		"they died before others came": {time.Minute, slight},
	} {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			virtual(t, func(t *testing.T, holder *lock.Locker, _ *link, probe *redis.Client) {
				held, err := holder.TryAcquire(t.Context(), "a", time.Hour)
				must(t, err)
				dead, l, client := another(t, probe, lock.Config{}, nil)
				defer func() { _ = client.Close() }()
				doomed, c := newCrowd(t), newCrowd(t)
				defer doomed.leave(0)
				for range 3 {
					doomed.join(dead, time.Hour)
				}
				lives, _, other := another(t, probe, lock.Config{}, nil)
				defer func() { _ = other.Close() }()
				if test.ago == time.Minute {
					die(l)
					time.Sleep(test.ago)
				}
				c.join(lives, time.Hour)
				if test.ago < time.Minute {
					die(l)
					time.Sleep(test.ago)
				}
				released := time.Now()
				must(t, held.Release(t.Context()))
				lease := next(t, c.turns, 1)
				if took := time.Since(released); took > test.most {
					t.Errorf("it took %v, want %v at most", took, test.most)
				}
				must(t, lease.Release(t.Context()))
			})
		})
	}
}

// Holders and waiters die, and no message arrives: whoever lives has the lock
// when the last holder's time is up, and a claim later for each dead waiter.
func TestLiveWaiterAcquiresWhoeverDies(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 1))
			virtual(t, func(t *testing.T, holder *lock.Locker, _ *link, probe *redis.Client) {
				ttl, dead, lives := time.Duration(10+rng.IntN(20))*time.Second, rng.IntN(4), 1+rng.IntN(3)
				cfg := lock.Config{AdoptTTL: ttl, PollOnly: rng.IntN(2) == 0}
				if rng.IntN(2) == 0 {
					must(t, probe.Set(t.Context(), "{v}:a", "by a SETNX that died", 0).Err())
				} else {
					_, err := holder.TryAcquire(t.Context(), "a", ttl)
					must(t, err)
				}
				began, doomed, c := time.Now(), newCrowd(t), newCrowd(t)
				for range dead {
					locker, l, client := another(t, probe, cfg, nil)
					defer func() { _ = client.Close() }()
					client.AddHook(hush{})
					doomed.join(locker, time.Hour)
					die(l)
				}
				for range lives {
					locker, _, client := another(t, probe, cfg, nil)
					defer func() { _ = client.Close() }()
					client.AddHook(hush{})
					c.join(locker, time.Hour)
				}
				most := ttl + time.Duration(dead+lives)*(claimTTL+slight) + look
				if cfg.PollOnly {
					most = ttl + time.Duration(dead)*(claimTTL+slight) + 100*time.Millisecond
				}
				most += time.Duration(dead+1) * time.Second // a key without a TTL has one from the first look
				first := <-c.turns
				must(t, first.err)
				if took := time.Since(began); took > most {
					t.Errorf("%d dead, %d alive, %+v: it took %v, want %v at most", dead, lives, cfg, took, most)
				}
				must(t, first.lease.Release(t.Context()))
				for range lives - 1 { // and so have the others in the end
					got := <-c.turns
					must(t, got.err)
					must(t, got.lease.Release(t.Context()))
				}
				doomed.leave(0)
			})
		})
	}
}

// silence is a connection whose subscription goes mute on demand.
type silence struct {
	net.Conn
	mute       *atomic.Bool
	subscribed atomic.Bool
}

func (s *silence) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("subscribe")) {
		s.subscribed.Store(true)
	}
	return s.Conn.Write(b)
}

func (s *silence) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		if err != nil || !s.subscribed.Load() || !s.mute.Load() {
			return n, err
		}
	}
}

// A subscription can die without a word. The waiter finds out, and polls.
func TestMuteSubscriptionIsFoundOut(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, holder *lock.Locker, _ *link, probe *redis.Client) {
		var mute atomic.Bool
		locker, _, client := another(t, probe, lock.Config{}, func(conn net.Conn) net.Conn { return &silence{Conn: conn, mute: &mute} })
		defer func() { _ = client.Close() }()
		for _, test := range []struct{ after, most time.Duration }{{0, look + slight}, {3 * look, 100*time.Millisecond + slight}} {
			held, err := holder.TryAcquire(t.Context(), "a", time.Hour)
			must(t, err)
			c := newCrowd(t)
			c.join(locker, time.Hour)
			time.Sleep(time.Minute)
			mute.Store(true)
			time.Sleep(test.after)
			released := time.Now()
			must(t, held.Release(t.Context()))
			lease := next(t, c.turns, 1)
			if took := time.Since(released); took > test.most {
				t.Errorf("mute for %v: it took %v, want %v at most", test.after, took, test.most)
			}
			must(t, lease.Release(t.Context()))
			mute.Store(false)
			time.Sleep(time.Minute)
		}
	})
}

// aside is a connection that acts when a message has come, before it is read.
type aside struct {
	net.Conn
	act *atomic.Pointer[func()]
}

func (a *aside) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if act := a.act.Load(); act != nil && bytes.Contains(b[:n], []byte("\r\nmessage\r\n")) {
		(*act)()
	}
	return n, err
}

// A hint that reaches a waiter who then gives up is not lost for the others of
// its process.
func TestHintOutlivesTheWaiterThatHadIt(t *testing.T) {
	t.Parallel()
	virtual(t, func(t *testing.T, _ *lock.Locker, _ *link, probe *redis.Client) {
		holder, err := lock.New(probe, lock.Config{Prefix: "{v}:", Unfair: true})
		must(t, err)
		var act atomic.Pointer[func()]
		locker, _, client := another(t, probe, lock.Config{Unfair: true}, func(conn net.Conn) net.Conn { return &aside{conn, &act} })
		defer func() { _ = client.Close() }()
		for range 30 { // each time chance decides what the first sees first
			held, err := holder.TryAcquire(t.Context(), "a", time.Hour)
			must(t, err)
			first, second := newCrowd(t), newCrowd(t)
			first.join(locker, time.Hour)
			second.join(locker, time.Hour)
			giveUp := func() { first.cancel() }
			act.Store(&giveUp)
			released := time.Now()
			must(t, held.Release(t.Context()))
			lease := next(t, second.turns, 1)
			if took := time.Since(released); took > slight {
				t.Errorf("it took %v", took)
			}
			first.leave(0)
			act.Store(nil)
			must(t, lease.Release(t.Context()))
		}
	})
}
