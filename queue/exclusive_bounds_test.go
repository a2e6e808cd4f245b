package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// Where Redis evicts, it is at its limit: there an extension does not take an evicted
// lock again, and reports as lost what nobody has.
func TestAnExtensionTakesAnEvictedLockAgainAtTheMemoryLimit(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	r.keyed(t, "key", "a", "b")
	a := r.popOne(t, "a")
	r.fill(t)
	must(t, r.Del(t.Context(), r.key("lock:key")).Err())
	lost, _, err := r.q.Extend(t.Context(), []*duly.Delivery{a}, time.Hour)
	must(t, err)
	equal(t, "lost", ids(lost), []string{})
}

// Held: verbs on parked tasks at the memory limit.
func TestParkedTasksAtTheMemoryLimit(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	ctx := t.Context()
	r.keyed(t, "key", "a", "b", "c", "d", "e", "f", "g")
	lease := r.acquire(t, "other", time.Hour)
	r.keyed(t, "other", "o")
	a := r.popOne(t, "a")
	r.enqueue(t, "a", queue.OnConflict(queue.Replace))
	r.fill(t)
	_, err := r.q.Cancel(ctx, "b")
	must(t, err)
	_, err = r.q.Reschedule(ctx, "c", queue.In(time.Hour))
	must(t, err)
	_, err = r.q.Reschedule(ctx, "d", queue.In(0))
	must(t, err)
	r.settle(t, duly.Acked, a)
	ds := r.pop(t, 9)
	equal(t, "popped", ids(ds), []string{"e", "a"}) // what took a's place has no key
	must(t, lease.Release(ctx))
	equal(t, "popped", ids(r.pop(t, 9)), []string{"o"})
	for _, id := range []string{"f", "g", "d"} {
		r.settle(t, duly.Acked, ds...)
		ds = r.pop(t, 9)
		equal(t, "popped", ids(ds), []string{id})
	}
}

// Held: odd bytes.
func TestOddBytes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, odd := range []string{":", "@", "#/", "1:2@k", "a#b/c", "é\u2028", "%d%%", strings.Repeat("é", 256), "[", "(", "-"} {
			t.Run(fmt.Sprintf("%.20q", odd), func(t *testing.T) {
				r := r.another(t, queue.Config{})
				first, second := odd, "z"
				r.keyed(t, odd, first)
				r.keyed(t, odd, second)
				r.link.lose()
				_, _, err := r.q.Pop(t.Context(), 2, time.Hour)
				wants(t, err, queue.ErrUnknownOutcome)
				d := r.popOne(t, first)
				lost, _, err := r.q.Extend(t.Context(), []*duly.Delivery{d}, time.Hour)
				must(t, err)
				equal(t, "lost", ids(lost), []string{})
				info, err := r.q.Locker().Inspect(t.Context(), odd)
				must(t, err)
				equal(t, "owner", info.Owner, "task "+first)
				r.lapse(t, d)
				d = r.popOne(t, first)
				r.wantState(t, queue.Parked, second)
				r.settle(t, duly.Acked, d)
				r.settle(t, duly.Acked, r.popOne(t, second))
				equal(t, "popped", ids(r.pop(t, 9)), []string{})
				for _, set := range []string{"turns", "blocked", "parked"} {
					equal(t, set, r.Exists(t.Context(), r.key(set)).Val(), 0)
				}
			})
		}
	})
}

// A pop of one task looks at 500 that it cannot lease, one by one, with their payloads.
func TestAPopOfOneTaskBehindABlockedKeyIsCheap(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	for _, payload := range []int{0, 100_000} {
		key := fmt.Sprint("key of ", payload)
		lease := r.acquire(t, key, time.Hour)
		tasks := many(500)
		for i := range tasks {
			tasks[i].ID = fmt.Sprint(payload, " ", tasks[i].ID)
			tasks[i].LockKey = key
			tasks[i].Payload = []byte(strings.Repeat("x", payload))
		}
		_, err := r.q.EnqueueMany(t.Context(), tasks)
		must(t, err)
		calls, total, longest := r.calls(t, func() { equal(t, "popped", ids(r.pop(t, 1)), []string{}) })
		t.Logf("payload %d: %d commands in a pop of 1, which took %v: %v", payload, total, longest, calls)
		if total > 2600 {
			t.Errorf("payload %d: %d commands in a pop of 1", payload, total)
		}
		_ = lease
	}
}
