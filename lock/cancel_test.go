package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// An around is a hook that acts before a script is sent, or when its reply is there.
type around struct {
	hooks
	before, after func()
}

func (s *around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		s.before()
		defer s.after()
		return next(ctx, cmd)
	}
}

// nth acts at the nth call.
func nth(n int32, act func()) func() {
	var calls atomic.Int32
	return func() {
		if calls.Add(1) == n {
			act()
		}
	}
}

// Whenever its context ends, a waiter leaves nothing behind: no lock, no place in
// line, no subscription; goroutines are counted at the end of all tests. What is
// known of its process expires.
func TestCancelledWaiterLeavesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		nothing := func() {}
		for story, test := range map[string]struct {
			held bool
			hook func(cancel func()) *around
		}{
			"before a free lock is asked for": {false, func(c func()) *around { return &around{before: nth(1, c), after: nothing} }},
			"when a free lock is had":         {false, func(c func()) *around { return &around{before: nothing, after: nth(1, c)} }},
			"before a held lock is asked for": {true, func(c func()) *around { return &around{before: nth(1, c), after: nothing} }},
			"when it stands in line":          {true, func(c func()) *around { return &around{before: nothing, after: nth(1, c)} }},
			"before its second look":          {true, func(c func()) *around { return &around{before: nth(2, c), after: nothing} }},
			"after its second look":           {true, func(c func()) *around { return &around{before: nothing, after: nth(2, c)} }},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			client := r.client(t, new(link))
			client.AddHook(test.hook(cancel))
			locker, err := lock.New(client, r.cfg)
			must(t, err)
			var held *lock.Lease
			if test.held {
				held = r.take(t, "a", time.Hour)
			}
			lease, err := locker.Acquire(ctx, "a", time.Hour)
			if err == nil && test.held {
				t.Fatalf("%s: it has the lock", story)
			}
			if err == nil { // the answer came before the end
				must(t, lease.Release(t.Context()))
			} else {
				wants(t, err, context.Canceled)
			}
			if test.held {
				must(t, held.Err())
				must(t, held.Release(t.Context()))
			}
			r.nothingIsLeft(t, story)
		}
	})
}

// A grant that nobody claims, for its waiter has gone, is given back.
func TestCancelledWaiterGivesItsGrantBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		warm(t, r)
		for _, when := range []string{"before the claim is sent", "when it is answered"} {
			held := r.take(t, "a", time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			granted := func() { // also after the test
				if value := r.Get(context.WithoutCancel(ctx), r.key("a")).Val(); !strings.Contains(value, held.Token()) {
					cancel()
				}
			}
			hook := &around{before: granted, after: func() {}}
			if when == "when it is answered" {
				hook = &around{before: func() {}, after: granted}
			}
			client := r.client(t, new(link))
			client.AddHook(hook)
			locker, err := lock.New(client, r.cfg)
			must(t, err)
			turns := make(chan turn, 1)
			r.stand(ctx, t, locker, "a", 1, turns)
			must(t, held.Release(t.Context()))
			if got := <-turns; got.err == nil { // it was quicker
				must(t, got.lease.Release(t.Context()))
			} else if !errors.Is(got.err, context.Canceled) {
				t.Fatalf("%s: %v", when, got.err)
			}
			r.nothingIsLeft(t, when)
			cancel()
		}
	})
}

// nothingIsLeft waits until a name is free and nobody waits or listens. What else
// there is has a TTL, or is the fence.
func (r *rig) nothingIsLeft(t *testing.T, story string) {
	t.Helper()
	eventually(t, story+": nothing is left", func() bool {
		plain, sharded := r.subscriptions(t, r.cfg.Prefix+"{wake}")
		n, err := r.Exists(t.Context(), r.key("a"), r.cfg.Prefix+"{line}:a").Result()
		must(t, err)
		return n == 0 && plain+sharded == 0
	})
	left, err := r.PTTL(t.Context(), r.cfg.Prefix+"{alive}:a").Result()
	must(t, err)
	if left == -1 || left > 20*time.Second {
		t.Errorf("%s: that its process is alive is kept for %v", story, left)
	}
}
