package redistest_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/dulyhq/duly/lock/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A key ends at the moment that its TTL says, whatever was asked in between and
// however long that took.
func TestVirtualTimeIsExact(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Virtual(t)()
		for _, ttl := range []time.Duration{time.Millisecond, 1700 * time.Millisecond, 400 * 24 * time.Hour} {
			must(t, rdb.Set(t.Context(), "a", "1", ttl).Err())
			for _, pause := range []time.Duration{time.Microsecond / 3, ttl / 7, ttl / 3} { // of which none is whole
				time.Sleep(pause)
				must(t, rdb.Ping(t.Context()).Err())
				must(t, rdb.PTTL(t.Context(), "a").Err())
			}
			time.Sleep(ttl - time.Microsecond/3 - ttl/7 - ttl/3 - time.Nanosecond)
			if n, err := rdb.Exists(t.Context(), "a").Result(); err != nil || n != 1 {
				t.Errorf("TTL %v: the key was gone early: %v", ttl, err)
			}
			time.Sleep(time.Nanosecond)
			if n, err := rdb.Exists(t.Context(), "a").Result(); err != nil || n != 0 {
				t.Errorf("TTL %v: the key is still there: %v", ttl, err)
			}
		}
	})
}

// TIME in a script, times to live and the bubble agree.
func TestVirtualHasOneClock(t *testing.T) {
	t.Parallel()
	script := redis.NewScript(`
		local time = redis.call('TIME')
		return {string.format('%.0f', time[1] * 1000000 + time[2]), redis.call('PTTL', KEYS[1])}`)
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.Virtual(t)()
		start := time.Now()
		must(t, rdb.Set(t.Context(), "a", "1", 48*time.Hour).Err())
		for range 24 {
			time.Sleep(time.Hour)
			reply, err := script.Run(t.Context(), rdb, []string{"a"}).Slice()
			must(t, err)
			if want := strconv.FormatInt(time.Now().UnixMicro(), 10); reply[0] != want {
				t.Errorf("TIME is %v µs, want %s", reply[0], want)
			}
			if want := (48*time.Hour - time.Since(start)).Milliseconds(); reply[1] != want {
				t.Errorf("%v ms are left, want %d", reply[1], want)
			}
		}
	})
}

// Who waits for a message does not hold the clock, and gets it at once.
func TestVirtualTimeGoesOnForSubscribers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial := redistest.Virtual(t)
		sub := dial().Subscribe(t.Context(), "wake")
		_, err := sub.Receive(t.Context())
		must(t, err)
		start := time.Now()
		go func() {
			time.Sleep(time.Hour)
			dial().Publish(t.Context(), "wake", "up")
		}()
		message, err := sub.ReceiveMessage(t.Context())
		must(t, err)
		if took := time.Since(start); message.Payload != "up" || took != time.Hour {
			t.Errorf("got %v after %v", message, took)
		}
		must(t, sub.Close())
	})
}

func TestVirtualFollowsTheRealClockOutsideABubble(t *testing.T) {
	t.Parallel()
	rdb := redistest.Virtual(t)()
	must(t, rdb.Set(t.Context(), "a", "1", 50*time.Millisecond).Err())
	set := time.Now()
	for deadline := set.Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		n, err := rdb.Exists(t.Context(), "a").Result()
		must(t, err)
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a key of 50 ms is there after 20 s")
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
