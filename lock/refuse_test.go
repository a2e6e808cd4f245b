package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// A Redis that is full refuses to lock and to stand in line, clearly and without
// a half of it done; what is held can be extended and released, and is passed on.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	probe := server.Client()
	locker, err := lock.New(server.Client(), lock.Config{Prefix: "{full}:"})
	must(t, err)
	held, err := locker.TryAcquire(t.Context(), "held", time.Minute)
	must(t, err)
	second, err := lock.NewDeaf(server.Client(), lock.Config{Prefix: "{full}:"}) // no look that is refused ends its wait
	must(t, err)
	ctx, cancel := context.WithCancel(soon(t))
	waited := make(chan error)
	go func() { waited <- release(second.Acquire(ctx, "held", time.Minute)) }()
	eventually(t, "one waits", func() bool {
		info, err := locker.Inspect(t.Context(), "held")
		return err == nil && info.Waiters == 1
	})
	must(t, probe.ConfigSet(t.Context(), "maxmemory", "1").Err())
	stored := func() string {
		keys, err := probe.Keys(t.Context(), "*").Result()
		must(t, err)
		return strings.Join(keys, " ")
	}
	before := stored()

	for what, err := range map[string]error{
		"TryAcquire":     release(locker.TryAcquire(t.Context(), "new", time.Minute)),
		"Acquire":        release(locker.Acquire(soon(t), "new", time.Minute)),
		"Acquire a held": release(locker.Acquire(soon(t), "held", time.Minute)),
	} {
		if !redis.IsOOMError(err) || errors.Is(err, lock.ErrUnknownOutcome) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("%s: got %v, want Redis's own refusal", what, err)
		}
	}
	if after := stored(); len(after) != len(before) {
		t.Errorf("there were %q, now %q", before, after)
	}
	must(t, held.Extend(t.Context(), time.Hour))
	must(t, held.Release(t.Context()))
	info, err := locker.Inspect(t.Context(), "held")
	must(t, err)
	if !info.Held || info.Token == held.Token() || info.Waiters != 0 {
		t.Errorf("it was not passed on: %+v", info)
	}
	cancel()
	wants(t, <-waited, context.Canceled)
	eventually(t, "it is given back", func() bool { return probe.Exists(t.Context(), "{full}:held").Val() == 0 })
}

func TestReplicaRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	probe := server.Client()
	locker, err := lock.New(server.Client(), lock.Config{})
	must(t, err)
	held, err := locker.TryAcquire(t.Context(), "held", time.Minute)
	must(t, err)
	must(t, probe.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err()) // of one that is down; it keeps its data
	for what, err := range map[string]error{
		"TryAcquire":     release(locker.TryAcquire(t.Context(), "new", time.Minute)),
		"Acquire":        release(locker.Acquire(soon(t), "new", time.Minute)),
		"Acquire a held": release(locker.Acquire(soon(t), "held", time.Minute)),
		"Extend":         held.Extend(t.Context(), time.Hour),
		"Release":        held.Release(t.Context()),
	} {
		if !redis.IsReadOnlyError(err) || errors.Is(err, lock.ErrUnknownOutcome) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("%s: got %v, want Redis's own refusal", what, err)
		}
	}
	must(t, probe.Do(t.Context(), "replicaof", "no", "one").Err())
	must(t, held.Release(t.Context()))
	if keys := probe.Keys(t.Context(), "*new*").Val(); len(keys) != 0 {
		t.Errorf("a replica was made to have %q", keys)
	}
}

// Another program has put something else at one of the keys.
func TestKeysOfAWrongType(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, key := range []string{"{line}:a", "{alive}:a", "{fence}", "a"} {
			held := r.take(t, "a", time.Minute)
			waiting, err := lock.NewDeaf(r.client(t, new(link)), r.cfg) // no look that is refused ends its wait
			must(t, err)
			ctx, cancel := context.WithCancel(soon(t))
			turns := make(chan turn, 1)
			r.stand(ctx, t, waiting, "a", 1, turns)
			must(t, r.Del(t.Context(), r.cfg.Prefix+key).Err())
			must(t, r.HSet(t.Context(), r.cfg.Prefix+key, "theirs", "1").Err())

			err = held.Release(t.Context())
			if err != nil && !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s: released with %v", key, err)
			}
			if got := r.Exists(t.Context(), r.key("a")).Val(); got != 0 && key != "a" && key != "{line}:a" {
				t.Errorf("%s: its release did not free the lock: %q", key, r.value(t, "a"))
			}
			if _, err = r.locker.TryAcquire(t.Context(), "a", time.Minute); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
				t.Errorf("%s: got %v, want Redis's own refusal", key, err)
			}
			if got := r.HGet(t.Context(), r.cfg.Prefix+key, "theirs").Val(); got != "1" {
				t.Errorf("%s: what was there is gone", key)
			}
			must(t, r.Del(t.Context(), r.cfg.Prefix+key).Err())
			cancel()
			if got := <-turns; got.err == nil {
				must(t, got.lease.Release(t.Context()))
			}
			eventually(t, "it can be had again", func() bool { return release(r.locker.TryAcquire(t.Context(), "a", time.Minute)) == nil })
		}
	})
}

// RetryAfter of a key that lives longer than a Duration can be is no moment in
// the past, at which a waiter would look without a pause.
func TestLongestTTL(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		must(t, r.Set(t.Context(), r.key("a"), "theirs", 0).Err())
		must(t, r.Do(t.Context(), "pexpireat", r.key("a"), int64(1)<<60).Err())
		_, err := r.locker.TryAcquire(t.Context(), "a", time.Minute)
		held, ok := errors.AsType[*lock.HeldError](err)
		if !ok || held.RetryAfter < 24*time.Hour {
			t.Errorf("got %v, want it held for long", err)
		}
		info, err := r.locker.Inspect(t.Context(), "a")
		must(t, err)
		if info.TTL < 24*time.Hour {
			t.Errorf("it is shown to last for %v", info.TTL)
		}
	})
}
