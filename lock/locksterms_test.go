package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// What a script lets go by the terms of an unfair locker is told nobody.
func TestTermsOfAnUnfairLockerTellItsWaiters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx, cfg := t.Context(), r.cfg
		cfg.Unfair = true
		l, _ := r.newLocker(t, cfg)
		terms, err := l.Terms()
		must(t, err)
		told := func(free func()) int {
			sub := r.Subscribe(ctx, cfg.Prefix+"{wake}")
			defer func() { _ = sub.Close() }()
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			free()
			must(t, r.Publish(ctx, cfg.Prefix+"{wake}", "end").Err())
			for n := 0; ; {
				got, err := sub.Receive(ctx)
				must(t, err)
				if m, ok := got.(*redis.Message); ok {
					if m.Payload == "end" {
						return n
					}
					n++
				}
			}
		}
		lease, err := l.TryAcquire(ctx, "n", time.Minute)
		must(t, err)
		if n := told(func() { must(t, lease.Release(ctx)) }); n != 1 {
			t.Skipf("told %d of a release: not a kind that publishes here", n)
		}
		must(t, r.Set(ctx, l.Key("n"), "7:mine#/", time.Minute).Err())
		if n := told(func() {
			_, err := locksScript.Run(ctx, r, []string{l.Key("n")}, terms, "free", "n", "7:mine#/")
			must(t, err)
		}); n != 1 {
			t.Errorf("told %d times that the lock is free, want once as by a release", n)
		}
	})
}

// A prefix with a line feed is taken, and its terms are those of other keys.
func TestTermsSurviveAnyPrefix(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		cfg := r.cfg
		cfg.Prefix = cfg.Prefix + "x\n"
		cfg.FenceKey = ""
		l, _ := r.newLocker(t, cfg)
		terms, err := l.Terms()
		if err != nil {
			return
		}
		lease, err := l.TryAcquire(t.Context(), "n", time.Minute)
		must(t, err)
		got, err := locksScript.Run(t.Context(), r, []string{l.Key("n")}, terms, "blocked", "n", "7:mine#/", 30000)
		must(t, err)
		if got == "nil" {
			t.Errorf("a script may have the lock that %v holds", lease.Token())
		}
	})
}
