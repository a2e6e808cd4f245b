package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

var fencedSet = lock.FenceCheck(`return {redis.call('SET', KEYS[2], ARGV[2]).ok}`)

func TestFenceCheckRefusesALowerFence(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for i, c := range []struct {
			seen, mine string
			stale      bool
		}{
			{seen: "", mine: "0"},
			{seen: "", mine: "1"},
			{seen: "7", mine: "7"},
			{seen: "7", mine: "8"},
			{seen: "7", mine: "6", stale: true},
			{seen: "9", mine: "10"},
			{seen: "10", mine: "9", stale: true},
			{seen: "010", mine: "9", stale: true},
			{seen: "9", mine: "0010"},
			{seen: "1763660000123456", mine: "1763660000123456"},
			{seen: "1763660000123456", mine: "1763660000123455", stale: true},
			{seen: "9007199254740993", mine: "9007199254740992", stale: true}, // alike as floating-point numbers
			{seen: "18446744073709551615", mine: "18446744073709551614", stale: true},
			{seen: "18446744073709551614", mine: "18446744073709551615"},
		} {
			seen, data := fmt.Sprint("seen", i), fmt.Sprint("data", i)
			r.put(t, data, "old", 0)
			if c.seen != "" {
				r.put(t, seen, c.seen, 0)
			}
			reply, err := fencedSet.Run(t.Context(), r.client(t, new(link)), []string{r.key(seen), r.key(data)}, c.mine, "new")
			must(t, err)
			want := []string{"[OK]", c.mine, "new"}
			if c.stale {
				want = []string{fmt.Sprint([]string{"stale", c.seen}), c.seen, "old"}
			}
			got := []string{fmt.Sprint(reply), r.value(t, seen), r.value(t, data)}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("fence %s after %q: got answer, fence and data %q, want %q", c.mine, c.seen, got, want)
			}
		}
	})
}

func TestFenceCheckRefusesWhatIsNoFence(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		client := r.client(t, new(link))
		refused := func(seen, mine string) {
			t.Helper()
			keys := []string{r.key("seen"), r.key("data")}
			r.put(t, "seen", seen, 0)
			_, err := fencedSet.Run(t.Context(), client, keys, mine, "new")
			if _, ok := errors.AsType[redis.Error](err); !ok || errors.Is(err, lock.ErrUnknownOutcome) {
				t.Errorf("fence %q after %q: got error %v, want Redis's own", mine, seen, err)
			}
			if r.value(t, "seen") != seen || r.value(t, "data") != "" {
				t.Errorf("fence %q after %q was let through", mine, seen)
			}
		}
		for _, mine := range []string{"", " 8", "8 ", "-8", "+8", "8.0", "8e1", "0x8", "nan", "inf", "8\n", "100000000000000000000"} {
			refused("7", mine)
		}
		for _, seen := range []string{"", "x", "-1", "7:token"} {
			refused(seen, "8")
		}
		r.Del(t.Context(), r.key("seen"))
		must(t, r.HSet(t.Context(), r.key("seen"), "a", 1).Err())
		_, err := fencedSet.Run(t.Context(), client, []string{r.key("seen"), r.key("data")}, "8", "new")
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("a hash for a fence: got %v, want WRONGTYPE", err)
		}
	})
}

// A process that was paused past the end of its lease writes late, and is
// refused.
func ExampleFenceCheck() {
	rdb, end := exampleClient()
	defer end()
	ctx := context.Background()
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	write := lock.FenceCheck(`redis.call('SET', KEYS[2], ARGV[2]) return {'written'}`)
	keys := []string{"{phones}:fence", "{phones}:left"}

	paused, _ := locker.Acquire(ctx, "phones", 10*time.Second)
	rdb.Del(ctx, "duly:lock:{phones}") // as if its time were over
	next, _ := locker.Acquire(ctx, "phones", 10*time.Second)

	reply, _ := write.Run(ctx, rdb, keys, next.Fence(), "9 phones")
	fmt.Println("the next holder:", word(reply))
	reply, _ = write.Run(ctx, rdb, keys, paused.Fence(), "10 phones")
	fmt.Println("the paused one:", word(reply))
	fmt.Println(rdb.Get(ctx, keys[1]).Val())
	// Output:
	// the next holder: written
	// the paused one: stale
	// 9 phones
}
