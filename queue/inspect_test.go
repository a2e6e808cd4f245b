package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestGetShowsATaskInEachState(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		missing := r.get(t, "x")
		equal(t, "missing", missing, queue.Info{Task: duly.Task{ID: "x"}, State: queue.Missing})

		want := duly.Task{ID: "x", Kind: "k", Payload: []byte("p"), LockKey: "l", Headers: map[string]string{"h": "v"}, MaxAttempts: 3, Timeout: time.Second}
		receipt, err := r.q.Enqueue(t.Context(), want, queue.In(time.Hour))
		must(t, err)
		equal(t, "due", r.get(t, "x"), queue.Info{Task: want, State: queue.Due, At: receipt.Due})

		_, err = r.q.Reschedule(t.Context(), "x", queue.In(0))
		must(t, err)
		r.lapse(t, r.popOne(t, "x"))
		r.settle(t, duly.Retried, r.popOne(t, "x"))
		d := r.popOne(t, "x")
		equal(t, "leased", r.get(t, "x"), queue.Info{Task: want, State: queue.Leased, Failures: 1, LastError: "test"})

		r.lapse(t, d)
		from := r.now(t)
		r.settle(t, duly.Buried, r.popOne(t, "x"))
		dead := r.get(t, "x")
		between(t, "died", dead.At, from, r.now(t))
		equal(t, "dead", dead, queue.Info{Task: want, State: queue.Dead, At: dead.At, Failures: 2, LastError: "test"})
	})
}

func TestListPagesThroughEachStateByTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const n = 7
		for i := range n {
			r.enqueue(t, fmt.Sprint("dead ", i))
			r.settle(t, duly.Buried, r.pop(t, 1)...)
		}
		for i := range n {
			r.enqueue(t, fmt.Sprint("leased:", i))
			r.pop(t, 1)
		}
		for i := range n {
			r.enqueue(t, fmt.Sprint("due ", n-1-i), queue.In(time.Duration(n-i)*time.Hour))
		}
		for state, prefix := range map[queue.State]string{queue.Dead: "dead ", queue.Leased: "leased:", queue.Due: "due "} {
			var last time.Time
			next := 0
			for offset := 0; offset < n+3; offset += 3 {
				page, err := r.q.List(t.Context(), state, offset, 3)
				must(t, err)
				equal(t, "length of the page", len(page), max(0, min(3, n-offset)))
				for _, info := range page {
					id := fmt.Sprint(prefix, next)
					equal(t, "listed", []any{info.ID, info.State, string(info.Payload)}, []any{id, state, "payload of " + id})
					if info.At.Before(last) {
						t.Errorf("%q at %v is listed after %v", id, info.At, last)
					}
					last = info.At
					next++
				}
			}
			equal(t, "listed in all", next, n)
		}
		beyond, err := r.q.List(t.Context(), queue.Due, 1<<40, queue.MaxPage)
		must(t, err)
		equal(t, "beyond the end", len(beyond), 0)
	})
}

func TestPeekShowsTheNextToBePoppedWithoutTakingThem(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for id, due := range map[string]float64{"b": 2, "a": 2, "c": 1} {
			r.enqueue(t, id, queue.In(time.Hour))
			must(t, r.ZAdd(t.Context(), r.key("due"), redis.Z{Score: due, Member: id}).Err())
		}
		r.enqueue(t, "later", queue.In(time.Hour))
		r.unchanged(t, func() {
			infos, err := r.q.Peek(t.Context(), 3)
			must(t, err)
			for i, id := range []string{"c", "a", "b"} {
				equal(t, "peeked", []any{infos[i].ID, infos[i].At.UnixMicro()}, []any{id, []int{1, 2, 2}[i]})
			}
			all, err := r.q.Peek(t.Context(), queue.MaxPage)
			must(t, err)
			equal(t, "peeked", len(all), 4)
		})
	})
}

func TestStatsCountTheTasksOfEachState(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		empty := r.stats(t)
		between(t, "now", empty.Now, r.now(t).Add(-time.Minute), r.now(t))
		empty.Now = time.Time{}
		equal(t, "empty", empty, queue.Stats{Counters: map[string]int64{}})

		r.bury(t, "dead")
		r.leased(t, "leased 1", "leased 2")
		receipt := r.enqueue(t, "ready")
		r.enqueue(t, "later 1", queue.In(time.Hour))
		r.enqueue(t, "later 2", queue.In(2*time.Hour))
		must(t, r.HSet(t.Context(), r.key("stat"), "foreign", "x", "huge", "99999999999999999999").Err())
		s := r.stats(t)
		equal(t, "tasks", []int{s.Due, s.Ready, s.Leased, s.Dead}, []int{3, 1, 2, 1})
		equal(t, "lateness", s.Lateness, s.Now.Sub(receipt.Due))
		equal(t, "enqueued", s.Counters["enqueued"], 6)
		if _, ok := s.Counters["foreign"]; ok {
			t.Error("a counter that is no number is counted")
		}
		_, err := r.q.Cancel(t.Context(), "ready")
		must(t, err)
		equal(t, "lateness with nothing ready", r.stats(t).Lateness, time.Duration(0))
	})
}

func TestReadingChangesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.bury(t, "dead")
		r.leased(t, "leased")
		r.enqueue(t, "due")
		r.unchanged(t, func() {
			for _, id := range []string{"dead", "leased", "due", "missing"} {
				r.get(t, id)
			}
			for _, state := range []queue.State{queue.Due, queue.Leased, queue.Dead} {
				_, err := r.q.List(t.Context(), state, 0, 10)
				must(t, err)
			}
			r.stats(t)
		})
	})
}

func TestCountersThatCannotCountStopNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, counter := range []string{"enqueued", "ack", "bury", "buried", "reclaimed", "cancelled", "revived", "purged"} {
			must(t, r.HSet(t.Context(), r.key("stat"), counter, "x").Err())
		}
		ds := r.leased(t, "ack", "bury", "lapse")
		_, err := r.q.Settle(t.Context(), []duly.Settlement{
			{Delivery: ds["ack"], Action: duly.Acked},
			{Delivery: ds["bury"], Action: duly.Buried, Err: errors.New("test")},
		})
		must(t, err)
		r.lapse(t, ds["lapse"])
		r.settle(t, duly.Released, r.popOne(t, "lapse"))
		_, err = r.q.Cancel(t.Context(), "lapse")
		must(t, err)
		n, err := r.q.Revive(t.Context(), "bury")
		must(t, err)
		equal(t, "revived", n, 1)
		r.settle(t, duly.Buried, r.popOne(t, "bury"))
		n, err = r.q.Purge(t.Context(), 0)
		must(t, err)
		equal(t, "purged", n, 1)
	})
}
