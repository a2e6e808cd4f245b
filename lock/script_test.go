package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

var (
	guardedPing = lock.Guarded("return {'pong'}")
	increment   = lock.NewScript("return redis.call('INCR', KEYS[1])")
)

// word is the first element of a script's reply.
func word(reply any) any {
	if words, ok := reply.([]any); ok && len(words) > 0 {
		return words[0]
	}
	return reply
}

func TestGuardedScript(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		run := func(name, token string) []any {
			t.Helper()
			reply, err := guardedPing.Run(t.Context(), r.client(t, new(link)), []string{r.key(name)}, token, 60_000)
			must(t, err)
			words, _ := reply.([]any)
			return words
		}
		passes := func(name, token string) {
			t.Helper()
			if got := run(name, token); word(got) != "pong" {
				t.Fatalf("got %v, want it to run", got)
			}
		}
		locked := func(name, token string, atMost int64) {
			t.Helper()
			stored, got := r.value(t, name), run(name, token)
			left, ok := got[len(got)-1].(int64)
			if word(got) != "locked" || !ok || left <= 0 || left > atMost {
				t.Fatalf("got %v, want locked and at most %d ms", got, atMost)
			}
			if r.value(t, name) != stored {
				t.Fatal("the guard changed the lock")
			}
		}

		passes("a", "")
		lease := r.take(t, "a", 10*time.Second)
		locked("a", "", 10_000)
		locked("a", "another", 10_000)
		passes("a", lease.Token())
		must(t, lease.Release(t.Context()))
		passes("a", lease.Token())

		for _, value := range []string{"1", "", "12:", ":"} {
			r.put(t, "b", value, 0)
			locked("b", "", 60_000) // adopted
			if left := r.left(t, "b"); left <= 0 || left > time.Minute {
				t.Fatalf("%q: the key lives for %v, want the adopting TTL", value, left)
			}
			locked("b", "another", 60_000)
		}
	})
}

func TestScriptReplies(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		client := r.client(t, new(link))
		for _, c := range []struct {
			src  string
			want any
		}{
			{"return 7", int64(7)},
			{"return 'seven'", "seven"},
			{"return false", nil},
			{"return ARGV[2] .. ARGV[1]", "21"},
		} {
			got, err := lock.NewScript(c.src).Run(t.Context(), client, []string{r.key("a")}, 1, "2")
			must(t, err)
			if got != c.want {
				t.Errorf("%s: got %#v, want %#v", c.src, got, c.want)
			}
		}
		r.put(t, "text", "x", 0)
		_, err := increment.Run(t.Context(), client, []string{r.key("text")})
		if _, ok := errors.AsType[redis.Error](err); !ok || errors.Is(err, lock.ErrUnknownOutcome) {
			t.Errorf("got %v, want Redis's own error", err)
		}
	})
}

// A script that Redis has forgotten is sent again whole, by many callers at once.
func TestScriptSurvivesScriptFlush(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		client := r.client(t, new(link))
		unique := lock.NewScript("-- " + r.cfg.Prefix + "\nreturn redis.call('INCR', KEYS[1])")
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				if _, err := unique.Run(t.Context(), client, []string{r.key("n")}); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		if got := r.value(t, "n"); got != "8" {
			t.Errorf("8 calls ran %s times", got)
		}
	})
}

// go-redis sends a command again when its reply is lost; a script must not run
// twice for that.
func TestLostReplyIsNotRetried(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		lossy := new(link)
		client := r.client(t, lossy)
		_, err := increment.Run(t.Context(), client, []string{r.key("n")})
		must(t, err)
		lossy.lose(nil)
		_, err = increment.Run(t.Context(), client, []string{r.key("n")})
		wants(t, err, lock.ErrUnknownOutcome)
		if got := r.value(t, "n"); got != "2" {
			t.Errorf("2 calls ran %s times", got)
		}
	})
}

func TestScriptOnAnEndedContext(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := increment.Run(ctx, r.client(t, new(link)), []string{r.key("n")})
		wants(t, err, context.Canceled)
		if errors.Is(err, lock.ErrUnknownOutcome) || r.value(t, "n") != "" {
			t.Errorf("it was sent: %v", err)
		}
	})
}

func TestClosedClientIsNoUnknownOutcome(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		client := r.client(t, new(link))
		must(t, client.Close())
		locker, err := lock.New(client, r.cfg)
		must(t, err)
		_, err = locker.TryAcquire(soon(t), "a", time.Minute)
		if err == nil || errors.Is(err, lock.ErrUnknownOutcome) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("got %v, want that the client is closed", err)
		}
	})
}
