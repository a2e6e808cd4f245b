package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// prompt fails the test if a call waits for a node that hangs. The node's time is
// 30 s at a TTL of 10 min, and the client's is a minute.
func prompt(t *testing.T, what string, call func() error) {
	t.Helper()
	began := time.Now()
	if err := call(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%s took %v", what, took)
	}
}

const long = 10 * time.Minute

// The ways in which a node fails.
var failures = map[string]func(*rig, *redistest.Server){
	"killed":  func(_ *rig, s *redistest.Server) { s.Kill() },
	"stopped": func(_ *rig, s *redistest.Server) { s.Signal(syscall.SIGSTOP) },
	"refusing": func(n *rig, _ *redistest.Server) {
		n.link.refuse.Store(true)
		n.link.mute.Store(true)
	},
}

func TestQuorumWorksWithAMinorityDown(t *testing.T) {
	t.Parallel()
	for what, fail := range failures {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f, servers := ownFleet(t)
			before := f.take(t, "before", long)
			f.whole(t, before)
			for i := range 2 {
				fail(f.nodes[i], servers[i])
			}
			var lease *lock.Lease
			prompt(t, "acquire", func() (err error) { lease, err = f.locker.Acquire(t.Context(), "a", long); return err })
			prompt(t, "extend", func() error { return lease.Extend(t.Context(), long) })
			prompt(t, "extend one from before", func() error { return before.Extend(t.Context(), long) })
			prompt(t, "refuse", func() error {
				_, err := f.locker.TryAcquire(t.Context(), "a", long)
				if errors.Is(err, lock.ErrHeld) {
					return nil
				}
				return errors.Join(errors.New("not held"), err)
			})
			prompt(t, "inspect", func() error {
				info, err := f.locker.Inspect(t.Context(), "a")
				if info.Token != lease.Token() {
					t.Errorf("inspected %+v", info)
				}
				return err
			})
			var resumed *lock.Lease
			prompt(t, "resume", func() (err error) {
				resumed, err = f.locker.Resume(t.Context(), "a", lease.Token(), long)
				return err
			})
			prompt(t, "release", func() error { return resumed.Release(t.Context()) })
			prompt(t, "release one from before", func() error { return before.Release(t.Context()) })
			must(t, release(f.locker.Acquire(soon(t), "before", long)))
			prompt(t, "force", func() error {
				f.take(t, "c", long)
				n, err := f.locker.ForceRelease(t.Context(), "c")
				if n != 1 {
					t.Errorf("%d were held", n)
				}
				return err
			})
		})
	}
}

func TestQuorumWithoutAMajority(t *testing.T) {
	t.Parallel()
	f, servers := ownFleet(t)
	const ttl = 2 * time.Second
	lease := f.take(t, "a", ttl)
	lease.KeepAlive()
	for _, s := range servers[:3] {
		s.Kill()
	}
	f.nodes = f.nodes[3:]
	until := lease.Until()
	err := lease.Extend(soon(t), ttl)
	wants(t, err, lock.ErrNoQuorum)
	if errors.Is(err, lock.ErrExpired) || errors.Is(err, lock.ErrLost) || !lease.Until().Equal(until) {
		t.Errorf("it is held as long as before, but got %v", err)
	}
	_, err = f.locker.TryAcquire(soon(t), "b", time.Minute)
	wants(t, err, lock.ErrNoQuorum)
	_, err = f.locker.Acquire(soon(t), "a", time.Minute) // held on two, unknown on three
	wants(t, err, lock.ErrNoQuorum)
	f.free(t, "b")
	finished(t, lease.Done())
	wants(t, lease.Err(), lock.ErrExpired)
	wants(t, lease.Release(soon(t)), lock.ErrNoQuorum)
	f.free(t, "a")
}

// Two votes of three, with two nodes that hang: another contender may have the
// rest, so it is worth waiting.
func TestQuorumSplitVoteWithAMinorityDownIsHeld(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.nodes[0].put(t, "a", "1:other", time.Minute)
	f.nodes[1].link.deaf.Store(true)
	f.nodes[2].link.deaf.Store(true)
	_, err := f.locker.TryAcquire(soon(t), "a", 10*time.Second)
	wants(t, err, lock.ErrHeld)
	if errors.Is(err, lock.ErrNoQuorum) {
		t.Errorf("got %v", err)
	}
}

// A contract of NewQuorum: nodes keep what they have said.
func TestQuorumRestartWithoutDataBreaksExclusion(t *testing.T) {
	t.Parallel()
	for what, args := range map[string][]string{"without data": nil, "appendfsync always": {"--appendonly", "yes", "--appendfsync", "always"}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f, servers := ownFleet(t, args...)
			lease := f.take(t, "a", time.Minute)
			f.whole(t, lease)
			for _, s := range servers[:3] {
				s.Restart()
			}
			second, err := f.locker.TryAcquire(soon(t), "a", time.Minute)
			switch broken := args == nil; {
			case !broken:
				wants(t, err, lock.ErrHeld)
			case err != nil || !lease.Held():
				t.Errorf("want two holders, got %v and %v", err, lease.Err())
			case second.Fence() <= lease.Fence():
				t.Errorf("fence %d follows %d", second.Fence(), lease.Fence())
			}
		})
	}
}

// hold is a hook that holds back a script, after some that pass, until it is let
// go.
type hold struct {
	hooks
	skip    int32
	scripts atomic.Int32
	arrived chan struct{}
	letGo   chan struct{}
	heard   atomic.Bool
}

func newHold() *hold { return &hold{arrived: make(chan struct{}), letGo: make(chan struct{})} }

func (h *hold) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") || h.scripts.Add(1) != h.skip+1 {
			return next(ctx, cmd)
		}
		close(h.arrived)
		<-h.letGo
		defer h.heard.Store(true)
		return next(context.WithoutCancel(ctx), cmd) // as if it had been sent before
	}
}

// A request that is late on its way must not take the lock after its release.
func TestQuorumReleaseDoesNotOvertakeAStraggler(t *testing.T) {
	t.Parallel()
	for what, act := range map[string]func(*testing.T, *lock.Lease, *hold){
		"after the release": func(t *testing.T, lease *lock.Lease, h *hold) {
			must(t, lease.Release(soon(t)))
			close(h.letGo)
		},
		"before the release": func(t *testing.T, lease *lock.Lease, h *hold) {
			close(h.letGo)
			must(t, lease.Release(soon(t)))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			h := newHold()
			f.warm(t)
			locker, _ := f.newLocker(t, h)
			lease, err := locker.TryAcquire(soon(t), "a", long)
			must(t, err)
			<-h.arrived
			act(t, lease, h)
			eventually(t, "the straggler is heard", func() bool { return h.heard.Load() })
			f.free(t, "a")
		})
	}
}

// All that is asked of the nodes departs before an answer can decide: else a
// release would not know of it.
func TestQuorumLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.warm(t)
	for range 300 {
		// TryAcquire can be refused: what came late to three nodes is not yet undone.
		must(t, release(f.locker.Acquire(soon(t), "a", long)))
	}
	f.free(t, "a")
}

func TestQuorumLostReplyLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.warm(t)
	f.nodes[1].link.lose(nil)
	lease := f.take(t, "a", long)
	f.nodes[2].link.lose(nil)
	must(t, lease.Extend(soon(t), long))
	must(t, lease.Release(soon(t)))
	f.free(t, "a")
}

// A node that fails between its vote and the agreement on the fence is one of a
// minority: those that were not waited for stand in for it.
func TestQuorumAgreesWithoutANodeThatVoted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.warm(t)
	last := f.nodes[4]
	must(t, last.IncrBy(t.Context(), f.cfg.Prefix+"{fence}", 1e12).Err()) // so that all others must be told
	for _, n := range f.nodes[:2] {
		l := n.link
		l.afterScripts(2, func() { l.deaf.Store(true) })
	}
	prompt(t, "acquire", func() error {
		lease, err := f.locker.TryAcquire(t.Context(), "a", long)
		if err == nil {
			err = lease.Release(t.Context())
		}
		return err
	})
}

// A majority that has granted a lock and does not learn its fence would let the
// next one be lower.
func TestQuorumWithoutAgreementIsNone(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.warm(t)
	must(t, f.nodes[4].IncrBy(t.Context(), f.cfg.Prefix+"{fence}", 1e12).Err())
	for _, n := range f.nodes[:4] {
		l := n.link
		l.afterScripts(2, func() { l.deaf.Store(true) })
	}
	_, err := f.locker.TryAcquire(soon(t), "a", time.Second)
	wants(t, err, lock.ErrNoQuorum)
	for _, n := range f.nodes[:4] {
		n.Del(t.Context(), n.key("a"))
	}
	f.free(t, "a")
}

func TestQuorumHonoursContexts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	lease := f.take(t, "a", long)
	f.whole(t, lease)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	sent := f.nodes[0].link.scripts.Load()
	_, err := f.locker.TryAcquire(ended, "b", long)
	wants(t, err, context.Canceled)
	wants(t, lease.Extend(ended, long), context.Canceled)
	if errors.Is(err, lock.ErrUnknownOutcome) || f.nodes[0].link.scripts.Load() != sent {
		t.Errorf("something was sent: %v", err)
	}
	for _, n := range f.nodes {
		n.link.deaf.Store(true)
	}
	for what, call := range map[string]func(context.Context) error{
		"try":     func(ctx context.Context) error { return release(f.locker.TryAcquire(ctx, "b", long)) },
		"acquire": func(ctx context.Context) error { return release(f.locker.Acquire(ctx, "b", long)) },
		"extend":  func(ctx context.Context) error { return lease.Extend(ctx, long) },
		"inspect": func(ctx context.Context) error { _, err := f.locker.Inspect(ctx, "a"); return err },
		"force":   func(ctx context.Context) error { _, err := f.locker.ForceRelease(ctx, "a"); return err },
		"resume":  func(ctx context.Context) error { _, err := f.locker.Resume(ctx, "a", lease.Token(), long); return err },
	} {
		prompt(t, what, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			wants(t, call(ctx), lock.ErrNoQuorum, context.DeadlineExceeded)
			return nil
		})
	}
	prompt(t, "release", func() error {
		wants(t, lease.Release(t.Context()), lock.ErrNoQuorum, lock.ErrUnknownOutcome)
		return nil
	})
	for _, n := range f.nodes {
		n.Del(t.Context(), n.key("a"))
	}
}
