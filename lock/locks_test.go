package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// locksScript runs one of the functions of Locks.
var locksScript = lock.NewScript(lock.Locks + `
local got = locks(ARGV[1])[ARGV[2]](unpack(ARGV, 3))
if got == nil then return 'nil' end
if type(got) == 'boolean' then return tostring(got) end
return got`)

func TestLocksTakesKeepsAndFreesWhatLockersSee(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx, cfg := t.Context(), r.cfg
		later := float64(time.Now().Add(time.Hour).UnixMicro())
		cfg.Parked, cfg.ParkedWake = r.key("{parked}"), "wake"
		l, _ := r.newLocker(t, cfg)
		terms, err := l.Terms()
		must(t, err)
		call := func(args ...any) any {
			t.Helper()
			got, err := locksScript.Run(ctx, r, []string{cfg.Parked}, append([]any{terms}, args...)...)
			must(t, err)
			return got
		}
		want := func(what string, got, want any) {
			t.Helper()
			if got != want {
				t.Fatalf("%s: got %v, want %v", what, got, want)
			}
		}
		want("a free lock", call("blocked", "n", "7:mine", 30000), "nil")
		call("hold", "n", "7:mine#/", 60000)
		_, err = l.TryAcquire(ctx, "n", time.Minute)
		wants(t, err, lock.ErrHeld)
		want("its own", call("blocked", "n", "7:mine#/", 30000), "nil")
		want("keep", call("keep", "n", "7:mine#/", 90000), "true")
		if left := call("blocked", "n", "8:other", 30000).(int64); left < 80_000 || left > 90_000 {
			t.Fatalf("it is blocked for %d ms", left)
		}
		want("keep of another", call("keep", "n", "8:other", 90000), "false")
		call("free", "n", "8:other")
		want("what another has freed", r.value(t, "n"), "7:mine#/")

		must(t, r.ZAdd(ctx, cfg.Parked, redis.Z{Member: "n", Score: later}, redis.Z{Member: "m", Score: later}).Err())
		call("free", "n", "7:mine#/")
		want("what was let go is looked at", r.ZScore(ctx, cfg.Parked, "n").Val() < later, true)
		want("the score of the other", r.ZScore(ctx, cfg.Parked, "m").Val(), later)
		lease, err := l.TryAcquire(ctx, "m", time.Minute)
		must(t, err)
		must(t, lease.Release(ctx))
		want("what was released is looked at", r.ZScore(ctx, cfg.Parked, "m").Val() < later, true)
	})
}

func TestTermsAreThoseOfOneRedisAndOneHashTag(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	l, err := lock.New(rdb, lock.Config{})
	must(t, err)
	if _, err := l.Terms(); err == nil {
		t.Error("a locker without a hash tag has terms")
	}
	for _, parked := range []string{"parked", "{b}parked"} {
		_, err := lock.New(rdb, lock.Config{Prefix: "{a}:", Parked: parked})
		wants(t, err, lock.ErrInvalid)
	}
}
