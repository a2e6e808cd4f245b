package queue_test

import (
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestATaskWhoseLeaseRanOutGivesItsLockKeyUp(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a")
		r.lapse(t, r.popOne(t, "a"))
		r.settle(t, duly.Acked, r.popOne(t, "a"))
	})
}

func TestARepeatedPopIsInDueOrderWhateverTheLockKeys(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		due := queue.At(r.now(t).Add(time.Hour))
		tasks := []duly.Task{task("a"), task("b"), task("c")} // due together, so in the order of their IDs
		tasks[0].LockKey, tasks[1].LockKey = "z", "y"
		_, err := r.q.EnqueueMany(t.Context(), tasks, due)
		must(t, err)
		for _, x := range tasks {
			must(t, r.ZAdd(t.Context(), r.key("due"), zAt(x.ID, 1)).Err())
		}
		r.link.lose()
		_, _, err = r.q.Pop(t.Context(), 3, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		equal(t, "popped again", ids(r.pop(t, 3)), []string{"a", "b", "c"})
	})
}

func TestANewcomerIsBehindWhoWaitsForAKeyThatWasEvicted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		a := r.popOne(t, "a")
		equal(t, "popped", ids(r.pop(t, 9)), []string{})
		must(t, r.Del(t.Context(), r.key("lock:key")).Err())
		r.keyed(t, "key", "newcomer")
		if ds := r.pop(t, 9); len(ds) > 0 { // none: it makes way
			t.Fatalf("popped %v before b", ids(ds))
		}
		r.settle(t, duly.Acked, a, r.popOne(t, "b"))
		r.settle(t, duly.Acked, r.popOne(t, "newcomer"))
	})
}

func TestAPopLooksAtABoundedNumberOfKeys(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const keys = 250
		leased := r.hundred(t, keys, 1)
		blocked, err := r.ZRange(t.Context(), r.key("blocked"), 0, -1).Result()
		must(t, err)
		for _, key := range blocked {
			must(t, r.ZAdd(t.Context(), r.key("blocked"), zAt(key, 1)).Err())
		}
		equal(t, "popped", ids(r.pop(t, 1)), []string{})
		equal(t, "keys not looked at yet", r.ZCount(t.Context(), r.key("blocked"), "1", "1").Val(), len(blocked)-200)
		r.settle(t, duly.Acked, leased...)
	})
}
