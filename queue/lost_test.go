package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestALostReplyToEnqueueIsUnknownAndEnqueuingAgainIsSafe(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.link.lose()
		receipt, err := r.q.Enqueue(t.Context(), task("x"), queue.In(time.Hour))
		wants(t, err, queue.ErrUnknownOutcome)
		equal(t, "receipt", receipt, queue.Receipt{ID: "x"})
		r.unchanged(t, func() {
			again := r.enqueue(t, "x", queue.In(time.Hour))
			equal(t, "second try", []any{again.Outcome, again.State}, []any{"kept", "due"})
		})
		equal(t, "enqueued", r.stats(t).Counters["enqueued"], 1)
	})
}

func TestALostReplyToPopIsRepeatedUnderTheSameFenceWithoutACrash(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.leased(t, "before")
		for _, id := range []string{"a", "b", "c"} {
			r.enqueue(t, id)
		}
		r.link.lose()
		_, _, err := r.q.Pop(t.Context(), 2, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		lost := r.snapshot(t)
		equal(t, "leased by the lost pop", len(lost.leased), 3)

		other, _ := r.queue(t, queue.Config{})
		equal(t, "popped by another", ids(popFrom(t, other, 1)), []string{"c"})
		from := r.now(t)
		again, wait, err := r.q.Pop(t.Context(), 5, 2*time.Hour)
		must(t, err)
		equal(t, "repeated", ids(again), []string{"a", "b"})
		if wait < 59*time.Minute || wait > time.Hour {
			t.Errorf("the next is said to come in %v, not when the first lease ends", wait)
		}
		for _, d := range again {
			equal(t, "crashes, attempt", []int{d.Crashes, d.Attempt}, []int{0, 1})
			if _, ok := lost.leased[fmt.Sprintf("%d:%d:%s", d.Fence, d.Due.UnixMicro(), d.ID)]; !ok {
				t.Errorf("%q comes under another fence than it was leased", d.ID)
			}
		}
		leased, err := r.q.List(t.Context(), queue.Leased, 0, 9)
		must(t, err)
		equal(t, "leased", len(leased), 4)
		between(t, "end of the repeated lease", leased[3].At, from.Add(2*time.Hour), r.now(t).Add(2*time.Hour))
		equal(t, "a third time", ids(r.pop(t, 5)), []string{})
		r.settle(t, duly.Acked, again...)
	})
}

func TestALostPopIsRepeatedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "a")
		for range 3 {
			r.link.lose()
			_, _, err := r.q.Pop(t.Context(), 5, time.Hour)
			wants(t, err, queue.ErrUnknownOutcome)
			r.enqueue(t, "b", queue.OnConflict(queue.Replace))
		}
		equal(t, "repeated", ids(r.pop(t, 5)), []string{"a"})
		equal(t, "then", ids(r.pop(t, 5)), []string{"b"})
	})
}

func TestARepeatedPopForFewerGivesTheRestBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		due := make(map[string]time.Time)
		for _, id := range []string{"a", "b", "c"} {
			due[id] = r.enqueue(t, id).Due
		}
		r.link.lose()
		_, _, err := r.q.Pop(t.Context(), 3, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		first := r.popOneOf(t, 1)
		rest := r.pop(t, 3)
		equal(t, "rest", len(rest), 2)
		for _, d := range append(rest, first) {
			equal(t, "due, crashes", []any{d.Due, d.Crashes}, []any{due[d.ID], 0})
			delete(due, d.ID)
		}
		equal(t, "missing", len(due), 0)
	})
}

// A task that is given back has ended its run, and so its replacement comes.
func TestARepeatedPopForFewerGivesAReplacedTaskBackAsItsReplacement(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, id := range []string{"a", "b"} {
			r.enqueue(t, id)
		}
		r.link.lose()
		_, _, err := r.q.Pop(t.Context(), 2, time.Hour)
		wants(t, err, queue.ErrUnknownOutcome)
		next := duly.Task{ID: "b", Kind: "next"}
		_, err = r.q.Enqueue(t.Context(), next, queue.OnConflict(queue.Replace))
		must(t, err)
		r.settle(t, duly.Acked, r.popOneOf(t, 1))
		equal(t, "task", r.popOne(t, "b").Task, next)
	})
}

// popOneOf pops n tasks and wants one.
func (r *rig) popOneOf(t *testing.T, n int) *duly.Delivery {
	t.Helper()
	deliveries := r.pop(t, n)
	equal(t, "popped", len(deliveries), 1)
	return deliveries[0]
}

func TestALostPopWhoseLeasesRanOutIsACrash(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.enqueue(t, "x")
	c.link.lose()
	_, _, err := c.q.Pop(t.Context(), 1, time.Minute)
	wants(t, err, queue.ErrUnknownOutcome)
	c.step(time.Minute)
	d := c.popOne(t, "x")
	equal(t, "crashes", d.Crashes, 1)
}

func TestALostReplyToSettleIsReportedAsLostTheSecondTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ds := r.leased(t, "ack", "drop", "retry", "release", "bury", "foreign")
		r.settle(t, duly.Acked, ds["foreign"])
		settlements := []duly.Settlement{
			{Delivery: ds["ack"], Action: duly.Acked},
			{Delivery: ds["drop"], Action: duly.Dropped},
			{Delivery: ds["retry"], Action: duly.Retried, In: time.Hour},
			{Delivery: ds["release"], Action: duly.Released},
			{Delivery: ds["bury"], Action: duly.Buried},
		}
		r.link.lose()
		_, err := r.q.Settle(t.Context(), settlements)
		wants(t, err, queue.ErrUnknownOutcome)
		r.unchanged(t, func() {
			lost, err := r.q.Settle(t.Context(), settlements)
			must(t, err)
			equal(t, "lost", ids(lost), []string{"ack", "drop", "retry", "release", "bury"})
		})
		r.wantState(t, queue.Due, "retry", "release")
		r.wantState(t, queue.Dead, "bury")
		equal(t, "failures", r.get(t, "retry").Failures, 1)
	})
}

func TestALostReplyToOneOfSeveralSettlementScripts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		_, err := r.q.EnqueueMany(t.Context(), many(queue.MaxBatch+2))
		must(t, err)
		deliveries := append(r.pop(t, queue.MaxBatch), r.pop(t, queue.MaxBatch)...)
		r.settle(t, duly.Acked, deliveries[7]) // and the script is loaded
		settlements := make([]duly.Settlement, len(deliveries))
		for i, d := range deliveries {
			settlements[i] = duly.Settlement{Delivery: d, Action: duly.Acked}
		}
		r.link.onReply(func() error { r.link.lose(); return nil })
		lost, err := r.q.Settle(t.Context(), settlements)
		wants(t, err, queue.ErrUnknownOutcome)
		equal(t, "lost for certain", ids(lost), ids(deliveries[7:8]))
		lost, err = r.q.Settle(t.Context(), settlements)
		must(t, err)
		equal(t, "lost the second time", len(lost), len(deliveries))
	})
}

func TestALostReplyToExtendIsHarmless(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d := r.leased(t, "x")["x"]
		for range 2 {
			r.link.lose()
			_, _, err := r.q.Extend(t.Context(), []*duly.Delivery{d}, 2*time.Hour)
			wants(t, err, queue.ErrUnknownOutcome)
		}
		lost, _, err := r.q.Extend(t.Context(), []*duly.Delivery{d}, 2*time.Hour)
		must(t, err)
		equal(t, "lost", ids(lost), []string{})
		r.settle(t, duly.Acked, d)
	})
}

func TestALostReplyToAnyOtherVerbIsUnknownAndTheVerbActsOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.bury(t, "dead")
		r.done(t, "done", "1")
		r.enqueue(t, "due", queue.In(time.Hour))
		other := r.enqueue(t, "other", queue.In(time.Hour))
		for _, verb := range []struct {
			name string
			call func() (any, error)
			then any // what it answers the second time
		}{
			{"reschedule", func() (any, error) { return r.q.Reschedule(ctx, "due", queue.In(2*time.Hour)) }, queue.Due},
			{"cancel", func() (any, error) { return r.q.Cancel(ctx, "due") }, queue.Missing},
			{"revive", func() (any, error) { return r.q.Revive(ctx, "dead") }, 0},
			{"remove", func() (any, error) { return r.q.Remove(ctx, "other", other.Due) }, false},
			{"purge", func() (any, error) { return r.q.Purge(ctx, time.Hour) }, 0},
			{"pause", func() (any, error) { return nil, r.q.Pause(ctx) }, nil},
			{"resume", func() (any, error) { return nil, r.q.Resume(ctx) }, nil},
		} {
			sent := r.link.scripts.Load()
			r.link.lose()
			_, err := verb.call()
			wants(t, err, queue.ErrUnknownOutcome)
			if n := r.link.scripts.Load() - sent; n > 2 { // the second after NOSCRIPT
				t.Errorf("%s was sent %d times", verb.name, n)
			}
			got, err := verb.call()
			must(t, err)
			equal(t, verb.name+" the second time", got, verb.then)
		}
		for name, read := range map[string]func() error{
			"get":   func() error { _, err := r.q.Get(ctx, "x"); return err },
			"list":  func() error { _, err := r.q.Peek(ctx, 1); return err },
			"stats": func() error { _, err := r.q.Stats(ctx); return err },
			"wait":  func() error { _, err := r.q.Wait(ctx, "done"); return err },
		} {
			r.link.lose()
			if err := read(); !errors.Is(err, queue.ErrUnknownOutcome) {
				t.Errorf("%s: got %v", name, err)
			}
			must(t, read())
		}
	})
}

func TestADelayedDuplicateOfAnOldPopLeasesNothing(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	client, h := r.client(t, new(link)), new(tap)
	client.AddHook(h)
	q := newQueue(t, client, r.name, queue.Config{})
	for _, id := range []string{"a", "b", "c"} {
		r.enqueue(t, id)
	}
	equal(t, "popped", ids(popFrom(t, q, 1)), []string{"a"})
	old := h.held()
	equal(t, "popped", ids(popFrom(t, q, 1)), []string{"b"})
	for what, command := range map[string][]any{"the one before": old, "the last": h.held()} {
		r.unchanged(t, func() {
			got, err := r.Do(t.Context(), command...).Slice()
			must(t, err)
			equal(t, "answer to "+what, got, []string{"stale"})
		})
	}
	equal(t, "popped", ids(popFrom(t, q, 1)), []string{"c"})
}

// A request that its caller has given up can still arrive: after the server
// hung, or by a slower connection than the next.
func TestAPopThatArrivesLateTakesNothingFromTheOneThatFollowedIt(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	client, h := r.client(t, new(link)), new(tap)
	client.AddHook(h)
	q := newQueue(t, client, r.name, queue.Config{})
	for _, id := range []string{"a", "b", "c"} {
		r.enqueue(t, id)
	}
	popFrom(t, newQueue(t, client, r.name+"2", queue.Config{}), 1) // loads the script
	h.holdNext()
	_, _, err := q.Pop(t.Context(), 1, time.Second)
	wants(t, err, queue.ErrUnknownOutcome)
	late := h.held()
	following := popFrom(t, q, 3)
	equal(t, "popped", ids(following), []string{"a", "b", "c"})
	r.unchanged(t, func() { must(t, r.Do(t.Context(), late...).Err()) })
	r.settle(t, duly.Acked, following...)
}

func TestAPopThatArrivesAfterAnEmptyOneIsBroughtByTheNext(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	client, h := r.client(t, new(link)), new(tap)
	client.AddHook(h)
	q := newQueue(t, client, r.name, queue.Config{})
	popFrom(t, q, 1) // loads the script
	h.holdNext()
	_, _, err := q.Pop(t.Context(), 1, time.Hour)
	wants(t, err, queue.ErrUnknownOutcome)
	late := h.held()
	equal(t, "popped", ids(popFrom(t, q, 1)), []string{})
	r.enqueue(t, "a")
	must(t, r.Do(t.Context(), late...).Err()) // leases it, and nobody hears of it
	r.wantState(t, queue.Leased, "a")
	deliveries := popFrom(t, q, 1)
	equal(t, "popped", ids(deliveries), []string{"a"})
	r.settle(t, duly.Acked, deliveries...)
}

// The caller has received a later pop than the one that a replica, which has just
// become the master, knows of.
func TestAPopBeforeTheLastOneReceivedIsNotBroughtAgainAfterAFailover(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "a")
		first := r.popOne(t, "a")
		pops, err := r.Keys(t.Context(), r.key("pop:*")).Result()
		must(t, err)
		equal(t, "records of pops", len(pops), 1)
		known := r.Get(t.Context(), pops[0]).Val()
		r.enqueue(t, "b")
		second := r.popOne(t, "b")
		r.settle(t, duly.Acked, second)
		must(t, r.Set(t.Context(), pops[0], known, time.Hour).Err())

		r.enqueue(t, "c")
		r.popOne(t, "c")
		r.settle(t, duly.Acked, first)
	})
}
