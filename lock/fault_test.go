package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// warm makes Redis know the scripts, so that the next reply to one is not NOSCRIPT.
func warm(t *testing.T, r *rig) {
	t.Helper()
	lease := r.take(t, "warm", time.Minute)
	must(t, lease.Extend(t.Context(), time.Minute))
	must(t, lease.Release(t.Context()))
}

func TestLostReplyOfAcquireIsAskedForAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		var taken string
		r.link.lose(func() { taken = r.value(t, "a") })
		lease := r.take(t, "a", time.Minute)
		if taken == "" || taken != r.value(t, "a") || taken != fmt.Sprintf("%d:%s", lease.Fence(), lease.Token()) {
			t.Fatalf("first stored %q, then %q for fence %d", taken, r.value(t, "a"), lease.Fence())
		}
		must(t, lease.Release(t.Context()))
		if got := r.value(t, "a"); got != "" {
			t.Fatalf("still locked: %q", got)
		}
	})
}

// A token that is almost the asker's must not pass for it when it asks again.
func TestAskingAgainComparesTheWholeToken(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		for name, foreign := range map[string]func(own string) string{
			"prefix":      func(own string) string { return own[:len(own)-1] },
			"superstring": func(own string) string { return own + "0" },
		} {
			var theirs string
			locker, link := r.newLocker(t, r.cfg) // what is released in the background loses no reply of the next case
			link.lose(func() {
				theirs = foreign(r.value(t, name))
				r.put(t, name, theirs, time.Hour)
			})
			_, err := locker.TryAcquire(t.Context(), name, 2*time.Hour)
			wants(t, err, lock.ErrHeld)
			if got, left := r.value(t, name), r.left(t, name); got != theirs || left > time.Hour {
				t.Fatalf("%s: the lock became %q for %v", name, got, left)
			}
		}
	})
}

func TestLostReplyOfAcquireLeavesNoLockWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		r.link.lose(cancel)
		_, err := r.locker.TryAcquire(ctx, "a", time.Hour)
		wants(t, err, lock.ErrUnknownOutcome, context.Canceled)
		eventually(t, "the lock is given back", func() bool { return r.value(t, "a") == "" })
	})
}

// The first request may have taken the lock; that the second was refused does
// not make it a failure of which nothing is left.
func TestRefusalAfterALostReplyIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		r.link.lose(func() { r.link.refuse.Store(true) })
		_, err := r.locker.TryAcquire(t.Context(), "a", time.Hour)
		wants(t, err, lock.ErrUnknownOutcome, syscall.ECONNREFUSED)
		if r.value(t, "a") == "" {
			t.Fatal("the story is not told: the first request did nothing")
		}
		r.link.refuse.Store(false)
	})
}

func TestLateReplyOfAcquireIsNoLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		r.link.delay(60 * time.Millisecond)
		lease, err := r.locker.TryAcquire(t.Context(), "a", 30*time.Millisecond)
		wants(t, err, lock.ErrExpired)
		if lease != nil {
			t.Fatalf("got a lease: %v", lease.Err())
		}
	})
}

func TestLostReplyOfExtend(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		lease := r.take(t, "a", time.Minute)
		until := lease.Until()
		r.link.lose(nil)
		wants(t, lease.Extend(t.Context(), time.Hour), lock.ErrUnknownOutcome)
		if !lease.Held() || !lease.Until().Equal(until) {
			t.Fatal("the lease is not held as long as before")
		}
		must(t, lease.Extend(t.Context(), time.Hour))
		if left := time.Until(lease.Until()); left < 50*time.Minute {
			t.Fatalf("extended to %v", left)
		}
		must(t, lease.Release(t.Context()))
	})
}

func TestKeepAliveSurvivesLostReplies(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		const ttl = time.Second
		lease := r.take(t, "a", ttl)
		lease.KeepAlive()
		for range 3 {
			lost := make(chan struct{})
			r.link.lose(func() { close(lost) })
			<-lost
		}
		sent := r.link.scripts.Load()
		eventually(t, "renewals go on", func() bool { return r.link.scripts.Load() > sent+1 })
		if !lease.Held() {
			t.Fatalf("the lease ended: %v", lease.Err())
		}
		must(t, lease.Release(t.Context()))
	})
}

func TestLostReplyOfRelease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		lease := r.take(t, "a", time.Minute)
		r.link.lose(nil)
		wants(t, lease.Release(t.Context()), lock.ErrUnknownOutcome)
		wants(t, lease.Err(), lock.ErrReleased)
		if got := r.value(t, "a"); got != "" {
			t.Fatalf("still locked: %q", got)
		}
		must(t, lease.Release(t.Context()))
	})
}

// A network, or a client that is not this package's, may send a request again
// after later ones. Only an acquisition repeated after the release takes the
// lock, for its TTL.
func TestRepeatedRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		requests := make(chan []any, 10)
		client := r.client(t, new(link))
		client.AddHook(spy{seen: requests})
		locker, err := lock.New(client, r.cfg)
		must(t, err)
		again := func(request []any) any {
			t.Helper()
			reply, err := r.Do(t.Context(), request...).Result()
			must(t, err)
			return word(reply)
		}
		last := func() (request []any) {
			for len(requests) > 0 {
				request = <-requests
			}
			return request
		}

		lease, err := locker.TryAcquire(t.Context(), "a", time.Minute)
		must(t, err)
		acquire, stored := last(), r.value(t, "a")
		must(t, lease.Extend(t.Context(), time.Hour))
		extend := last()
		for what, request := range map[string][]any{"acquire": acquire, "extend": extend} {
			if got := again(request); got != "ok" {
				t.Fatalf("%s again: %v", what, got)
			}
			if got, left := r.value(t, "a"), r.left(t, "a"); got != stored || left < 59*time.Minute {
				t.Fatalf("%s again made it %q for %v, the lease is %v", what, got, left, time.Until(lease.Until()))
			}
		}
		must(t, lease.Release(t.Context()))
		release := last()
		for what, request := range map[string][]any{"extend": extend, "release": release} {
			if got := again(request); got != "absent" || r.value(t, "a") != "" {
				t.Fatalf("%s again: %v, stored %q", what, got, r.value(t, "a"))
			}
		}
	})
}

func TestRefusedDialIsNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := listener.Addr().String()
	must(t, listener.Close())
	for name, client := range map[string]redis.UniversalClient{
		"single":  redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1, MaintNotificationsConfig: plain}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, DialerRetries: 1, MaintNotificationsConfig: plain}),
	} {
		t.Cleanup(func() { _ = client.Close() })
		locker, err := lock.New(client, lock.Config{})
		must(t, err)
		_, err = locker.Acquire(soon(t), "a", time.Minute)
		wants(t, err, syscall.ECONNREFUSED)
		if errors.Is(err, lock.ErrUnknownOutcome) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("%s: got %v, want a plain refusal", name, err)
		}
	}
}

// go-redis does not look at a context while it waits for a reply, unless it is
// told to; its read timeout is then what a caller waits for.
func TestContextIsHonouredByAStoppedServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: server.Socket, MaintNotificationsConfig: plain,
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, ContextTimeoutEnabled: false,
	})
	t.Cleanup(func() { _ = client.Close() })
	locker, err := lock.New(client, lock.Config{})
	must(t, err)
	lease, err := locker.TryAcquire(t.Context(), "a", time.Minute)
	must(t, err)
	server.Signal(syscall.SIGSTOP)

	for name, call := range map[string]func(context.Context) error{
		"TryAcquire": func(ctx context.Context) error { return release(locker.TryAcquire(ctx, "b", time.Minute)) },
		"Acquire":    func(ctx context.Context) error { return release(locker.Acquire(ctx, "c", time.Minute)) },
		"Extend":     func(ctx context.Context) error { return lease.Extend(ctx, time.Minute) },
		"Run": func(ctx context.Context) error {
			_, err := increment.Run(ctx, client, []string{"n"})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		before := time.Now()
		err := call(ctx)
		cancel()
		wants(t, err, lock.ErrUnknownOutcome, context.DeadlineExceeded)
		if took := time.Since(before); took > 2*time.Second {
			t.Errorf("%s returned after %v, want 50 ms", name, took)
		}
	}

	server.Signal(syscall.SIGCONT)
	probe := server.Client()
	eventually(t, "what was taken meanwhile is given back", func() bool {
		n, err := probe.Exists(t.Context(), "duly:lock:{b}", "duly:lock:{c}").Result()
		return err == nil && n == 0
	})
	must(t, lease.Release(t.Context()))
}

func TestAcquireGoesOnAfterTheServerRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	locker, err := lock.New(server.Client(), lock.Config{})
	must(t, err)
	before, err := locker.TryAcquire(t.Context(), "a", time.Minute)
	must(t, err)
	server.Restart() // without its data, and without the scripts
	after, err := locker.Acquire(soon(t), "a", time.Minute)
	must(t, err)
	if after.Fence() <= before.Fence() {
		t.Errorf("fence %d follows %d", after.Fence(), before.Fence())
	}
	wants(t, before.Extend(t.Context(), time.Minute), lock.ErrLost)
	must(t, after.Release(t.Context()))
}
