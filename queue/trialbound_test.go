package queue_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// While one task is on its last chance, a pop puts off the others that are on
// theirs. It must not go through all of them in one script.
func TestAPopPutsOffABoundedNumberOfLastChances(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]queue.Limits{"no limit": {}, "Running 2": {Running: 2}} {
		t.Run(name, func(t *testing.T) {
			r, _ := onOwnRedis(t)
			r = r.another(t, queue.Config{MaxCrashes: 2}) // so that one crash is enough
			const n = 20_000
			all := make([]duly.Task, n)
			for i := range all {
				all[i] = task(fmt.Sprintf("%06d", i))
			}
			_, err := r.q.EnqueueMany(t.Context(), all)
			must(t, err)
			for range n / 500 { // all workers die at once
				_, _, err := r.q.Pop(t.Context(), 500, time.Hour)
				must(t, err)
			}
			leased, err := r.ZRange(t.Context(), r.key("leased"), 0, -1).Result()
			must(t, err)
			equal(t, "leased", len(leased), n)
			for part := range slices.Chunk(leased, 1000) {
				for _, member := range part {
					must(t, r.ZAdd(t.Context(), r.key("leased"), zAt(member, 1)).Err())
				}
			}
			for range n/100 + 1 { // others reclaim a hundred each; the last takes one on trial
				_, _, err := r.q.Pop(t.Context(), 1, time.Hour)
				must(t, err)
				if r.stats(t).Leased == 1 {
					break
				}
			}
			r.limit(t, limits)
			var popped []*duly.Delivery
			calls, total, longest := r.calls(t, func() { popped = r.pop(t, 10) })
			t.Logf("popped %v; %d commands, the script took %v; zadd %d, zrange %d, hmget %d", ids(popped), total, longest, calls["zadd"], calls["zrange"], calls["hmget"])
			if total > 5_000 {
				t.Errorf("one pop made %d calls in %v", total, longest)
			}
		})
	}
}
