package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// kept enqueues a task that is to be kept and pops it.
func (r *rig) kept(t *testing.T, id string, retain time.Duration) *duly.Delivery {
	t.Helper()
	task := task(id)
	task.Retain = retain
	_, err := r.q.Enqueue(t.Context(), task)
	must(t, err)
	return r.popOne(t, id)
}

// done brings a task of an ID to the state Done, with a result.
func (r *rig) done(t *testing.T, id, result string) {
	t.Helper()
	r.ack(t, r.kept(t, id, time.Hour), result)
}

func (r *rig) ack(t *testing.T, d *duly.Delivery, result string) {
	t.Helper()
	lost, err := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: duly.Acked, Result: []byte(result)}})
	must(t, err)
	equal(t, "lost", ids(lost), []string{})
}

func TestRetainKeepsTheFinishedRecordAndItsResult(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d := r.kept(t, "x", time.Hour)
		must(t, r.q.Progress(t.Context(), d, []byte(`"half"`)))
		from := r.now(t)
		r.ack(t, d, `{"sum":42}`)
		to := r.now(t)
		info := r.get(t, "x")
		equal(t, "state", info.State, queue.Done)
		equal(t, "result, progress", []string{string(info.Result), string(info.Progress)}, []string{`{"sum":42}`, `"half"`})
		equal(t, "task", info.Task, d.Task)
		between(t, "kept until", info.At, from.Add(time.Hour), to.Add(time.Hour))
		listed, err := r.q.List(t.Context(), queue.Done, 0, 9)
		must(t, err)
		equal(t, "listed", fmt.Sprintf("%+v", listed), fmt.Sprintf("%+v", []queue.Info{info}))
		s := r.stats(t)
		equal(t, "counts", []int{s.Due, s.Leased, s.Dead, s.Done}, []int{0, 0, 0, 1})
		equal(t, "popped", ids(r.pop(t, 9)), []string{})
	})
}

func TestATaskThatDoesNotAskForItLeavesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d := r.leased(t, "x")["x"]
		must(t, r.q.Progress(t.Context(), d, []byte("1")))
		r.ack(t, d, "1")
		r.wantState(t, queue.Missing, "x")
		s := r.snapshot(t)
		equal(t, "left", len(s.done)+len(s.task)+len(s.result)+len(s.progress), 0)
	})
}

func TestOnlyWhatIsAcknowledgedIsKeptAndOnlyItsResult(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		after := map[duly.Action]queue.State{
			duly.Acked: queue.Done, duly.Dropped: queue.Missing, duly.Buried: queue.Dead, duly.Retried: queue.Due, duly.Released: queue.Due,
		}
		for action, state := range after {
			id := string(action)
			settlement := duly.Settlement{Delivery: r.kept(t, id, time.Hour), Action: action, In: time.Hour, Result: []byte("1")}
			_, err := r.q.Settle(t.Context(), []duly.Settlement{settlement})
			must(t, err)
			r.wantState(t, state, id)
		}
		equal(t, "results", r.snapshot(t).result, map[string]string{"ack": "1"})
	})
}

func TestADoneTaskNeverBlocksANewOneOfItsID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for _, conflict := range []queue.Conflict{queue.Keep, queue.Replace, queue.Earliest} {
			id := string(conflict)
			d := r.kept(t, id, time.Hour)
			must(t, r.q.Progress(t.Context(), d, []byte("1")))
			r.ack(t, d, `"old"`)
			receipt := r.enqueue(t, id, queue.OnConflict(conflict), queue.In(time.Minute))
			equal(t, "receipt", []any{receipt.Outcome, receipt.State, receipt.Due}, []any{queue.Added, queue.Done, r.get(t, id).At})
			info := r.get(t, id)
			equal(t, "the new one", []any{info.State, info.Result, info.Progress}, []any{queue.Due, []byte(nil), []byte(nil)})
		}
		s := r.snapshot(t)
		equal(t, "left of the old ones", len(s.done)+len(s.result)+len(s.progress), 0)
	})
}

func TestCancelRescheduleAndRemoveAnswerDoneAndChangeNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.done(t, "x", "1")
		r.unchanged(t, func() {
			state, err := r.q.Cancel(t.Context(), "x")
			must(t, err)
			equal(t, "cancel", state, queue.Done)
			state, err = r.q.Reschedule(t.Context(), "x", queue.In(time.Hour))
			must(t, err)
			equal(t, "reschedule", state, queue.Done)
			removed, err := r.q.Remove(t.Context(), "x", r.get(t, "x").At)
			must(t, err)
			equal(t, "removed", removed, false)
			n, err := r.q.Revive(t.Context(), "x")
			must(t, err)
			equal(t, "revived", n, 0)
			n, err = r.q.Purge(t.Context(), 0)
			must(t, err)
			equal(t, "purged", n, 0)
		})
	})
}

func TestWhenItsTimeIsOverADoneTaskIsMissingToEveryVerb(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	ctx := t.Context()
	c.done(t, "x", "1")
	c.ack(t, c.kept(t, "longer", 2*time.Hour), "2")
	c.step(time.Hour - time.Microsecond)
	c.wantState(t, queue.Done, "x")
	c.step(time.Microsecond)
	c.wantState(t, queue.Missing, "x")
	listed, err := c.q.List(ctx, queue.Done, 0, 9)
	must(t, err)
	equal(t, "listed", []any{len(listed), listed[0].ID}, []any{1, "longer"})
	equal(t, "done", c.stats(t).Done, 1)
	state, err := c.q.Cancel(ctx, "x")
	must(t, err)
	equal(t, "cancel", state, queue.Missing)
	state, err = c.q.Reschedule(ctx, "x", queue.In(0))
	must(t, err)
	equal(t, "reschedule", state, queue.Missing)
	_, err = c.q.Wait(ctx, "x")
	wants(t, err, duly.ErrNotFound)
	receipt := c.enqueue(t, "x")
	equal(t, "receipt", []any{receipt.Outcome, receipt.State}, []any{queue.Added, queue.Missing})
	c.wantState(t, queue.Due, "x")
}

// end lets the time of all kept records be over.
func (r *rig) end(t *testing.T) {
	t.Helper()
	var over []redis.Z
	for id := range r.snapshot(t).done {
		over = append(over, zAt(id, 1))
	}
	must(t, r.ZAdd(t.Context(), r.key("done"), over...).Err())
}

// keepMany brings tasks to the state Done.
func (r *rig) keepMany(t *testing.T, n int, retain time.Duration) {
	t.Helper()
	tasks := many(n)
	for i := range tasks {
		tasks[i].Retain = retain
	}
	_, err := r.q.EnqueueMany(t.Context(), tasks)
	must(t, err)
	var settlements []duly.Settlement
	for len(settlements) < n {
		for _, d := range r.pop(t, queue.MaxBatch) {
			settlements = append(settlements, duly.Settlement{Delivery: d, Action: duly.Acked, Result: []byte("1")})
		}
	}
	_, err = r.q.Settle(t.Context(), settlements)
	must(t, err)
}

// Though nothing is due, and nothing is kept any more.
func TestPopsForgetWhatWasKeptLongEnoughByHundreds(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keepMany(t, 250, time.Hour)
		r.end(t)
		for i, left := range []int{150, 50, 0} {
			_, wait, err := r.q.Pop(t.Context(), 1, time.Hour)
			must(t, err)
			s := r.snapshot(t)
			equal(t, "left", []int{len(s.done), len(s.task), len(s.result)}, []int{left, left, left})
			want := 100 * time.Millisecond // there is more to forget
			if i == 2 {
				want = 24 * time.Hour
			}
			equal(t, "wait", wait, want)
		}
	})
}

// Else a busy queue would keep more and more, however short it keeps.
func TestSettlementsForgetAsManyAsTheyKeep(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	const rounds = 6
	tasks := many(rounds * queue.MaxBatch)
	for i := range tasks {
		tasks[i].Retain = time.Microsecond
	}
	_, err := r.q.EnqueueMany(t.Context(), tasks)
	must(t, err)
	var batches [rounds][]duly.Settlement
	for i := range batches {
		for _, d := range r.pop(t, queue.MaxBatch) {
			batches[i] = append(batches[i], duly.Settlement{Delivery: d, Action: duly.Acked, Result: []byte("1")})
		}
	}
	for _, batch := range batches {
		_, err := r.q.Settle(t.Context(), batch)
		must(t, err)
		s := r.snapshot(t)
		if len(s.done) > queue.MaxBatch || len(s.result) > queue.MaxBatch {
			t.Fatalf("%d records and %d results are kept", len(s.done), len(s.result))
		}
	}
}

func TestTheResultOfTheFirstSettlementStandsIfItsReplyIsLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d := r.kept(t, "x", time.Hour)
		settlement := duly.Settlement{Delivery: d, Action: duly.Acked, Result: []byte(`"first"`)}
		r.link.lose()
		_, err := r.q.Settle(t.Context(), []duly.Settlement{settlement})
		wants(t, err, queue.ErrUnknownOutcome)
		settlement.Result = []byte(`"second"`)
		r.unchanged(t, func() {
			lost, err := r.q.Settle(t.Context(), []duly.Settlement{settlement})
			must(t, err)
			equal(t, "lost", ids(lost), []string{"x"})
		})
		equal(t, "result", string(r.get(t, "x").Result), `"first"`)
	})
}

func TestAnAcknowledgementWithoutRetainOrResultIsOneArgument(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	client, h := r.client(t, new(link)), new(tap)
	client.AddHook(h)
	q := newQueue(t, client, r.name, queue.Config{})
	arguments := func(settlements ...duly.Settlement) int {
		t.Helper()
		_, err := q.Settle(t.Context(), settlements)
		must(t, err)
		sent := h.held() // evalsha, digest, number of keys, keys, arguments
		return len(sent) - 3 - sent[2].(int)
	}
	ds := r.leased(t, "a", "b", "c", "d")
	equal(t, "of one", arguments(duly.Settlement{Delivery: ds["a"], Action: duly.Acked}), 2)
	equal(t, "of two", arguments(duly.Settlement{Delivery: ds["b"], Action: duly.Acked}, duly.Settlement{Delivery: ds["c"], Action: duly.Acked}), 3)
	equal(t, "with a result", arguments(duly.Settlement{Delivery: ds["d"], Action: duly.Acked, Result: []byte("1")}), 6)
}

func TestAFullRedisKeepsWhatIsDoneAndRefusesProgress(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	d := r.kept(t, "x", time.Hour)
	r.fill(t)
	wants(t, r.q.Progress(t.Context(), d, []byte("1")), queue.ErrFull)
	r.ack(t, d, "1")
	equal(t, "result", string(r.get(t, "x").Result), "1")
}

func TestAResultMayBeAsLargeAsItSays(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d, largest := r.kept(t, "x", time.Hour), `"`+strings.Repeat("x", duly.MaxResult-2)+`"`
		must(t, r.q.Progress(t.Context(), d, []byte(largest)))
		r.ack(t, d, largest)
		info := r.get(t, "x")
		equal(t, "sizes", []int{len(info.Result), len(info.Progress)}, []int{duly.MaxResult, duly.MaxResult})
		_, err := r.q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: duly.Acked, Result: []byte(largest + " ")}})
		wants(t, err, queue.ErrInvalid, duly.ErrResultTooLarge)
		if errors.Is(err, queue.ErrUnknownOutcome) {
			t.Errorf("it was sent: %v", err)
		}
	})
}
