package lock_test

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// A pair is a master and its replica, with a locker that wants its locks on both.
type pair struct {
	*rig
	master, replica *redistest.Server
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{master: redistest.Start(t, "--repl-diskless-sync-delay", "0")}
	host, port, err := net.SplitHostPort(p.master.Addr)
	must(t, err)
	p.replica = redistest.Start(t, "--replicaof", host+" "+port)
	p.rig = newRig(t, patient(p.master))
	p.cfg.ReplicaAcks = 1
	p.locker, p.link = p.newLocker(t, p.cfg)
	t.Cleanup(func() { _ = p.locker.ReleaseAll(context.Background()) })
	eventually(t, "the replica follows", func() bool {
		n, err := p.Do(t.Context(), "wait", 1, 1000).Int()
		return err == nil && n == 1
	})
	return p
}

func TestReplicaAcks(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	probe := p.replica.Client()
	for range 20 {
		lease := p.take(t, "a", 10*time.Second)
		got, err := probe.Get(t.Context(), p.key("a")).Result()
		if must(t, err); !strings.HasSuffix(got, ":"+lease.Token()) {
			t.Fatalf("the replica has %q", got)
		}
		must(t, lease.Extend(t.Context(), time.Hour))
		if left, err := probe.PTTL(t.Context(), p.key("a")).Result(); err != nil || left < 50*time.Minute {
			t.Fatalf("the replica has it for %v: %v", left, err)
		}
		must(t, lease.Release(t.Context()))
	}
}

func TestUnreplicatedLockIsNotHeld(t *testing.T) {
	t.Parallel()
	for what, fail := range map[string]func(*redistest.Server){
		"killed":  (*redistest.Server).Kill,
		"stopped": func(s *redistest.Server) { s.Signal(syscall.SIGSTOP) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			lease := p.take(t, "before", time.Minute)
			fail(p.replica)
			_, err := p.locker.TryAcquire(soon(t), "a", 2*time.Second)
			wants(t, err, lock.ErrUnreplicated)
			eventually(t, "it is given back", func() bool { return p.value(t, "a") == "" })
			_, err = p.locker.Acquire(soon(t), "b", 2*time.Second)
			wants(t, err, lock.ErrUnreplicated)
			eventually(t, "it is given back", func() bool { return p.value(t, "b") == "" })

			until := lease.Until()
			wants(t, lease.Extend(soon(t), 2*time.Minute), lock.ErrUnreplicated)
			if !lease.Held() || !lease.Until().Equal(until) {
				t.Errorf("it is not held as long as before, but %v: %v", lease.Until().Sub(until), lease.Err())
			}
			_, err = p.locker.TryAcquire(soon(t), "before", time.Minute)
			wants(t, err, lock.ErrHeld)
			must(t, lease.Release(soon(t)))
		})
	}
}

// The context leaves no time for the whole wait.
func TestUnreplicatedLockIsToldInTime(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.replica.Kill()
	plain, _ := p.newLocker(t, lock.Config{Prefix: p.cfg.Prefix})
	must(t, release(plain.TryAcquire(soon(t), "warm", time.Minute)))
	ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
	defer cancel()
	_, err := p.locker.TryAcquire(ctx, "a", time.Hour) // for which it would be waited for a second
	wants(t, err, lock.ErrUnreplicated)
	eventually(t, "it is given back", func() bool { return p.value(t, "a") == "" })
}

// WAIT knows what its own connection has written, and of no other.
func TestReplicasAreAskedOnTheSameConnection(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	seen := make(chan []string, 10)
	client := p.client(t, new(link))
	client.AddHook(pipelines{seen: seen})
	locker, err := lock.New(client, p.cfg)
	must(t, err)
	lease, err := locker.TryAcquire(soon(t), "a", time.Minute)
	must(t, err)
	must(t, lease.Extend(soon(t), time.Minute))
	must(t, lease.Release(soon(t)))
	if len(seen) < 2 {
		t.Errorf("%d of an acquisition and an extension are confirmed", len(seen))
	}
	for len(seen) > 0 {
		if names := strings.Join(<-seen, " "); names != "evalsha wait" && names != "eval wait" {
			t.Errorf("sent together: %s", names)
		}
	}
}

// pipelines is a hook that sees the names of what is sent together with WAIT.
type pipelines struct {
	hooks
	seen chan<- []string
}

func (h pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "wait" {
			h.seen <- []string{"wait"}
		}
		return next(ctx, cmd)
	}
}

func (h pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		names := make([]string, len(cmds))
		for i, cmd := range cmds {
			names[i] = cmd.Name()
		}
		if slices.Contains(names, "wait") {
			h.seen <- names
		}
		return next(ctx, cmds)
	}
}

// breaks is a hook that loses the reply to WAIT alone.
type breaks struct{ hooks }

func (breaks) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (breaks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		cmds[len(cmds)-1].SetErr(io.EOF)
		return err
	}
}

// The script has answered, so the lock is there, and whether a replica has it is
// not known.
func TestLostReplyOfWaitGivesTheLockBack(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	client := p.client(t, new(link))
	client.AddHook(breaks{})
	locker, err := lock.New(client, p.cfg)
	must(t, err)
	_, err = locker.TryAcquire(soon(t), "a", time.Hour)
	wants(t, err, lock.ErrUnreplicated, io.EOF)
	eventually(t, "it is given back", func() bool { return p.value(t, "a") == "" })
}

func TestClusterWithoutReplicasIsUnreplicated(t *testing.T) {
	t.Parallel()
	r := newRig(t, kinds["cluster"].share(t))
	r.cfg.ReplicaAcks = 1
	locker, _ := r.newLocker(t, r.cfg)
	prompt(t, "acquire", func() error {
		_, err := locker.TryAcquire(t.Context(), "a", 10*time.Minute)
		wants(t, err, lock.ErrUnreplicated)
		return nil
	})
	eventually(t, "it is given back", func() bool { return r.value(t, "a") == "" })
}

func TestQuorumOfNodesWithoutReplicas(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.warm(t)
	f.cfg.ReplicaAcks = 1
	locker, _ := f.newLocker(t)
	_, err := locker.TryAcquire(soon(t), "a", 10*time.Second)
	wants(t, err, lock.ErrNoQuorum, lock.ErrUnreplicated)
	f.free(t, "a")
}
