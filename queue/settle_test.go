package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// leased enqueues tasks and pops them.
func (r *rig) leased(t *testing.T, ids ...string) map[string]*duly.Delivery {
	t.Helper()
	for _, id := range ids {
		r.enqueue(t, id)
	}
	leased := make(map[string]*duly.Delivery, len(ids))
	for _, d := range r.pop(t, len(ids)) {
		leased[d.ID] = d
	}
	equal(t, "leased", len(leased), len(ids))
	return leased
}

func TestSettleDoesInOneBatchWhatEachActionSays(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ds := r.leased(t, "ack", "drop", "retry", "retry now", "own due", "later", "bury", "stale", "other", "repeat")
		r.lapse(t, ds["stale"])
		newest := r.popOne(t, "stale")
		boom := errors.New("boom: at \xff once")
		from := r.now(t)
		lost, err := r.q.Settle(t.Context(), []duly.Settlement{
			{Delivery: ds["ack"], Action: duly.Acked},
			{Delivery: ds["stale"], Action: duly.Acked},
			{Delivery: ds["drop"], Action: duly.Dropped, Err: boom},
			{Delivery: ds["retry"], Action: duly.Retried, In: time.Hour, Err: boom},
			{Delivery: ds["retry now"], Action: duly.Retried},
			{Delivery: ds["own due"], Action: duly.Released},
			{Delivery: ds["later"], Action: duly.Released, In: 2 * time.Hour},
			{Delivery: ds["bury"], Action: duly.Buried, Err: boom},
			{Delivery: ds["repeat"], Action: duly.Repeated, At: ds["repeat"].Due.Add(time.Hour), Err: boom},
		})
		to := r.now(t)
		must(t, err)
		equal(t, "lost", ids(lost), []string{"stale"})

		r.wantState(t, queue.Missing, "ack", "drop")
		r.wantState(t, queue.Leased, "stale", "other")
		retry, now, own, later, dead := r.get(t, "retry"), r.get(t, "retry now"), r.get(t, "own due"), r.get(t, "later"), r.get(t, "bury")
		equal(t, "retry", []any{retry.State, retry.Failures, retry.LastError}, []any{"due", 1, "boom: at  once"})
		between(t, "retry", retry.At, from.Add(time.Hour), to.Add(time.Hour))
		equal(t, "retry now", []any{now.State, now.Failures, now.LastError}, []any{"due", 1, ""})
		between(t, "retry now", now.At, from, to)
		equal(t, "own due", []any{own.State, own.Failures, own.At}, []any{"due", 0, ds["own due"].Due})
		equal(t, "later", []any{later.State, later.Failures}, []any{"due", 0})
		between(t, "later", later.At, from.Add(2*time.Hour), to.Add(2*time.Hour))
		equal(t, "bury", []any{dead.State, dead.Failures, dead.LastError}, []any{"dead", 1, "boom: at  once"})
		between(t, "bury", dead.At, from, to)

		again := r.get(t, "repeat")
		equal(t, "repeat", []any{again.State, again.At, again.Failures, again.LastError},
			[]any{"due", ds["repeat"].Due.Add(time.Hour), 0, "boom: at  once"})

		s := r.stats(t)
		equal(t, "counters", s.Counters, map[string]int64{
			"enqueued": 10, "reclaimed": 1, "ack": 1, "drop": 1, "retry": 2, "release": 2, "bury": 1, "repeat": 1,
		})
		equal(t, "tasks", []int{s.Due, s.Ready, s.Leased, s.Dead}, []int{5, 2, 2, 1})
		r.settle(t, duly.Acked, newest)
	})
}

func TestAReleasedTaskKeepsItsPlace(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"c", "a", "b"} {
			r.enqueue(t, id)
		}
		first := r.pop(t, 2)
		r.settle(t, duly.Released, first[1], first[0])
		again := r.pop(t, 3)
		equal(t, "order", ids(again), []string{"c", "a", "b"})
		for i, d := range first {
			equal(t, "due", again[i].Due, d.Due)
			equal(t, "attempt", again[i].Attempt, 1)
		}
	})
}

func TestAttemptsCountFailuresAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x")
		for i, action := range []duly.Action{duly.Retried, duly.Released, "crash", duly.Retried, "crash", duly.Released, duly.Retried} {
			d := r.popOne(t, "x")
			want := []int{[]int{1, 2, 2, 2, 3, 3, 3}[i], []int{0, 0, 0, 1, 0, 1, 1}[i]}
			equal(t, fmt.Sprintf("attempt and crashes before %s %d", action, i), []int{d.Attempt, d.Crashes}, want)
			if action == "crash" {
				r.lapse(t, d)
			} else {
				r.settle(t, action, d)
			}
		}
		d := r.popOne(t, "x")
		equal(t, "attempt and crashes", []int{d.Attempt, d.Crashes}, []int{4, 0})
	})
}

func TestSettleReportsStaleDeliveriesOfThousands(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const n = 2*queue.MaxBatch + 3
		_, err := r.q.EnqueueMany(t.Context(), many(n))
		must(t, err)
		var settlements []duly.Settlement
		var stale []*duly.Delivery
		for len(settlements) < n {
			for _, d := range r.pop(t, queue.MaxBatch) {
				settlements = append(settlements, duly.Settlement{Delivery: d, Action: duly.Acked})
			}
		}
		for _, i := range []int{0, queue.MaxBatch - 1, queue.MaxBatch, 3 * queue.MaxBatch / 2, n - 1} {
			stale = append(stale, settlements[i].Delivery)
		}
		r.lapse(t, stale...)
		again := r.pop(t, 10)
		lost, err := r.q.Settle(t.Context(), settlements)
		must(t, err)
		equal(t, "lost", ids(lost), ids(stale))
		r.settle(t, duly.Acked, again...)
		s := r.stats(t)
		equal(t, "left", []int{s.Due, s.Leased, s.Dead}, []int{0, 0, 0})
	})
}

func TestADeliverySettledTwiceInOneBatchCountsOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d := r.leased(t, "x")["x"]
		lost, err := r.q.Settle(t.Context(), []duly.Settlement{
			{Delivery: d, Action: duly.Acked},
			{Delivery: d, Action: duly.Retried, In: time.Hour},
		})
		must(t, err)
		equal(t, "lost", ids(lost), []string{"x"})
		r.wantState(t, queue.Missing, "x")
		equal(t, "counters", r.stats(t).Counters, map[string]int64{"enqueued": 1, "ack": 1})
	})
}

// A batch of 50 or more finds its leases by those that end with them: whatever
// mix of ends, of strangers and of duplicates it has, each is judged for itself.
func TestALargeBatchOfManyPopsJudgesEachLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		_, err := r.q.EnqueueMany(t.Context(), many(300))
		must(t, err)
		var settlements []duly.Settlement
		var wantLost []string
		settle := func(action duly.Action, ds ...*duly.Delivery) {
			for _, d := range ds {
				settlements = append(settlements, duly.Settlement{Delivery: d, Action: action, In: time.Hour, Err: errors.New("test")})
			}
		}
		lose := func(ds ...*duly.Delivery) {
			settle(duly.Acked, ds...)
			wantLost = append(wantLost, ids(ds)...)
		}
		left := r.pop(t, 100) // leased on, with those that are settled
		stranger := *left[50]
		stranger.Fence++
		lose(&stranger)
		settle(duly.Acked, left[:10]...)
		lose(left[:5]...)   // twice
		for i := range 12 { // more ends than are asked for one by one
			ds := r.pop(t, 5)
			settle([]duly.Action{duly.Acked, duly.Retried, duly.Buried}[i%3], ds...)
		}
		gone := r.pop(t, 20)
		r.settle(t, duly.Dropped, gone...)
		lose(gone...)
		settle(duly.Acked, left[90:]...)

		lost, err := r.q.Settle(t.Context(), settlements)
		must(t, err)
		equal(t, "lost", ids(lost), wantLost)
		equal(t, "leased", r.stats(t).Leased, 100-10-10)
		c := r.stats(t).Counters
		equal(t, "counters", []int64{c["ack"], c["retry"], c["bury"], c["drop"]}, []int64{40, 20, 20, 20})
		r.settle(t, duly.Acked, left[10:90]...)
	})
}

func TestAnErrorsTextIsCut(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d := r.leased(t, "x")["x"]
		long := strings.Repeat("é", queue.MaxError)
		_, err := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: duly.Buried, Err: errors.New("x" + long)}})
		must(t, err)
		got := r.get(t, "x").LastError
		if len(got) > queue.MaxError || len(got) < queue.MaxError-1 || !strings.HasPrefix("x"+long, got) {
			t.Fatalf("kept %d bytes of the error, %q", len(got), got)
		}
	})
}

func TestSettleOfNothing(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	lost, err := r.q.Settle(t.Context(), nil)
	must(t, err)
	late, _, err := r.q.Extend(t.Context(), nil, time.Second)
	must(t, err)
	if len(lost) != 0 || len(late) != 0 || r.link.scripts.Load() != 0 {
		t.Fatalf("got %v, %v, and %d scripts", lost, late, r.link.scripts.Load())
	}
}

func TestExtendMovesTheLeaseEndOfThoseHeldAndReportsTheRest(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ds := r.leased(t, "a", "b", "c", "gone", "stale")
		r.settle(t, duly.Acked, ds["gone"])
		r.lapse(t, ds["stale"])
		r.popOne(t, "stale")
		from := r.now(t)
		lost, _, err := r.q.Extend(t.Context(), []*duly.Delivery{ds["a"], ds["gone"], ds["b"], ds["stale"]}, 5*time.Hour)
		to := r.now(t)
		must(t, err)
		equal(t, "lost", ids(lost), []string{"gone", "stale"})
		infos, err := r.q.List(t.Context(), queue.Leased, 0, 10)
		must(t, err)
		ends := make(map[string]time.Time)
		for _, info := range infos {
			ends[info.ID] = info.At
		}
		equal(t, "leased", sortedKeys(ends), []string{"a", "b", "c", "stale"})
		between(t, "lease of a", ends["a"], from.Add(5*time.Hour), to.Add(5*time.Hour))
		between(t, "lease of b", ends["b"], from.Add(5*time.Hour), to.Add(5*time.Hour))
		for _, id := range []string{"c", "stale"} {
			if !ends[id].Before(to.Add(time.Hour)) {
				t.Errorf("the lease of %q was extended too, to %v", id, ends[id])
			}
		}
	})
}

func TestExtendOfThousands(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		_, err := r.q.EnqueueMany(t.Context(), many(queue.MaxBatch+2))
		must(t, err)
		deliveries := append(r.pop(t, queue.MaxBatch), r.pop(t, queue.MaxBatch)...)
		gone := []*duly.Delivery{deliveries[1], deliveries[queue.MaxBatch]}
		r.settle(t, duly.Acked, gone...)
		lost, _, err := r.q.Extend(t.Context(), deliveries, 2*time.Hour)
		must(t, err)
		equal(t, "lost", ids(lost), ids(gone))
	})
}
