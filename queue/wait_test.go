package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A waiting is a Wait that goes on beside its test.
type waiting struct {
	ended duly.Ended
	err   error
	at    time.Time
	over  chan struct{}
}

// wait begins to wait, and returns when n waits have looked.
func (r *rig) wait(t *testing.T, ctx context.Context, n int, id string) *waiting { //nolint:revive // t first, as everywhere
	t.Helper()
	w := &waiting{over: make(chan struct{})}
	go func() {
		defer close(w.over)
		w.ended, w.err = r.q.Wait(ctx, id)
		w.at = time.Now()
	}()
	r.awaitLooks(t, n)
	return w
}

func (r *rig) awaitLooks(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); r.q.Looked() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d waits have looked in 10 s, want %d", r.q.Looked(), n)
		}
	}
}

// get returns how the task has ended.
func (w *waiting) get(t *testing.T) duly.Ended {
	t.Helper()
	select {
	case <-w.over:
	case <-time.After(20 * time.Second):
		t.Fatal("Wait has not returned in 20 s")
	}
	must(t, w.err)
	return w.ended
}

// still fails the test if the wait is over. A message sent behind what it is about
// has been heard by then.
func (w *waiting) still(t *testing.T, r *rig, after string) {
	t.Helper()
	probe := task("probe of " + after)
	_, err := r.q.Enqueue(t.Context(), probe, queue.In(time.Hour))
	must(t, err)
	other := r.wait(t, t.Context(), r.q.Looked()+1, probe.ID)
	_, err = r.q.Cancel(t.Context(), probe.ID)
	must(t, err)
	equal(t, "probe", other.get(t).Action, duly.Cancelled)
	select {
	case <-w.over:
		t.Fatalf("Wait has returned %+v, %v after %s", w.ended, w.err, after)
	default:
	}
}

func TestWaitReturnsWhenTheTaskEndedWithItsResultOrError(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom: at \xff once")
	settle := func(s duly.Settlement) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) {
			s.Delivery = r.popOne(t, "x")
			_, err := r.q.Settle(t.Context(), []duly.Settlement{s})
			must(t, err)
		}
	}
	cases := map[string]struct {
		end  func(*testing.T, *rig)
		want duly.Ended
		is   error
	}{
		"acked": {settle(duly.Settlement{Action: duly.Acked}), duly.Ended{Action: duly.Acked}, nil},
		"acked with a result": {
			settle(duly.Settlement{Action: duly.Acked, Result: []byte("{\"a\":\"1:2\\n\"}")}),
			duly.Ended{Action: duly.Acked, Result: []byte("{\"a\":\"1:2\\n\"}")},
			nil,
		},
		"dropped":             {settle(duly.Settlement{Action: duly.Dropped}), duly.Ended{Action: duly.Dropped}, nil},
		"dropped for a cause": {settle(duly.Settlement{Action: duly.Dropped, Err: boom}), duly.Ended{Action: duly.Dropped, Err: errors.New("boom: at  once")}, nil},
		"buried":              {settle(duly.Settlement{Action: duly.Buried, Err: boom}), duly.Ended{Action: duly.Buried, Err: errors.New("boom: at  once")}, nil},
		"expired and buried":  {settle(duly.Settlement{Action: duly.Buried, Err: duly.ErrExpired}), duly.Ended{Action: duly.Buried, Err: duly.ErrExpired}, duly.ErrExpired},
		"expired and dropped": {settle(duly.Settlement{Action: duly.Dropped, Err: duly.ErrExpired}), duly.Ended{Action: duly.Dropped, Err: duly.ErrExpired}, duly.ErrExpired},
		"cancelled": {func(t *testing.T, r *rig) {
			_, err := r.q.Cancel(t.Context(), "x")
			must(t, err)
		}, duly.Ended{Action: duly.Cancelled}, nil},
		"removed": {func(t *testing.T, r *rig) {
			_, err := r.q.Remove(t.Context(), "x", r.get(t, "x").At)
			must(t, err)
		}, duly.Ended{Action: duly.Cancelled}, nil},
		"crashed too often": {func(t *testing.T, r *rig) {
			for range 3 {
				r.lapse(t, r.popOne(t, "x"))
			}
			equal(t, "popped", ids(r.pop(t, 9)), []string{})
		}, duly.Ended{Action: duly.Buried, Err: duly.ErrCrashed}, duly.ErrCrashed},
		"lost its record": {func(t *testing.T, r *rig) {
			must(t, r.HDel(t.Context(), r.key("task"), "x").Err())
			equal(t, "popped", ids(r.pop(t, 9)), []string{})
		}, duly.Ended{Action: duly.Buried, Err: duly.ErrCrashed}, nil},
	}
	onEach(t, func(t *testing.T, main *rig) {
		for name, c := range cases {
			for _, retain := range []time.Duration{0, time.Hour} {
				t.Run(fmt.Sprintf("%s, kept for %v", name, retain), func(t *testing.T) {
					r := main.another(t, queue.Config{})
					x := task("x")
					x.Retain = retain
					_, err := r.q.Enqueue(t.Context(), x)
					must(t, err)
					w := r.wait(t, t.Context(), 1, "x")
					other, _ := r.queue(t, queue.Config{}) // ends it from another process
					elsewhere := *r
					elsewhere.q = other
					c.end(t, &elsewhere)
					got := w.get(t)
					c.want.ID = "x"
					equal(t, "ended", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", c.want))
					if c.is != nil {
						wants(t, got.Err, c.is)
					}
				})
			}
		}
	})
}

func TestWaitReturnsAtOnceForATaskThatHasEndedAndWasKept(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.done(t, "done", `{"n":1}`)
		r.bury(t, "dead")
		ended, err := r.q.Wait(t.Context(), "done")
		must(t, err)
		equal(t, "done", []any{ended.Action, string(ended.Result)}, []any{duly.Acked, `{"n":1}`})
		ended, err = r.q.Wait(t.Context(), "dead")
		must(t, err)
		equal(t, "dead", []any{ended.Action, ended.Err}, []any{duly.Buried, "test"})
	})
}

func TestWaitSaysNotFoundForATaskThatWasNeverThereOrHasLeftNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		_, err := r.q.Wait(t.Context(), "never")
		wants(t, err, duly.ErrNotFound)
		r.settle(t, duly.Acked, r.leased(t, "gone")["gone"])
		_, err = r.q.Wait(t.Context(), "gone")
		wants(t, err, duly.ErrNotFound)
	})
}

func TestATaskThatIsRetriedReleasedOrRevivedHasNotEnded(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.bury(t, "x")
		_, err := r.q.Revive(t.Context(), "x")
		must(t, err)
		w := r.wait(t, t.Context(), 1, "x")
		for _, action := range []duly.Action{duly.Retried, duly.Released} {
			r.settle(t, action, r.popOne(t, "x"))
			w.still(t, r, string(action))
		}
		r.lapse(t, r.popOne(t, "x"))
		d := r.popOne(t, "x")
		w.still(t, r, "a crash")
		r.ack(t, d, "1")
		equal(t, "result", string(w.get(t).Result), "1")
	})
}

// Its place in the queue is what counts: who waits for an ID waits for the task
// that has it now.
func TestWaitGoesOnToTheTaskThatTakesThePlace(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x", queue.In(time.Hour))
		w := r.wait(t, t.Context(), 1, "x")
		r.enqueue(t, "x", queue.OnConflict(queue.Replace))
		w.still(t, r, "being replaced while due")
		d := r.popOne(t, "x")
		r.enqueue(t, "x", queue.OnConflict(queue.Replace))
		r.ack(t, d, `"first"`)
		w.still(t, r, "being replaced while it ran")
		r.ack(t, r.popOne(t, "x"), `"second"`)
		equal(t, "result", string(w.get(t).Result), `"second"`)
	})
}

func TestTheEndOfAnEarlierTaskIsNotThatOfANewOneOfItsID(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x")
		first := r.wait(t, t.Context(), 1, "x")
		r.ack(t, r.popOne(t, "x"), "1")
		equal(t, "first", string(first.get(t).Result), "1")
		_, err := r.q.Wait(t.Context(), "x")
		wants(t, err, duly.ErrNotFound)
		r.enqueue(t, "x")
		second := r.wait(t, t.Context(), 1, "x")
		must(t, r.Publish(t.Context(), r.key("ended"), "x").Err()) // has it look again
		second.still(t, r, "the first had ended")
		r.ack(t, r.popOne(t, "x"), "2")
		equal(t, "second", string(second.get(t).Result), "2")
	})
}

// What is written here is all that a settlement leaves whose message is lost.
func TestWaitReturnsThoughTheMessageIsLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x", queue.In(time.Hour))
		w := r.wait(t, t.Context(), 1, "x")
		must(t, r.HSet(t.Context(), r.key("ended"), "x", "1:ack:7").Err())
		equal(t, "result", string(w.get(t).Result), "7")
		must(t, r.Del(t.Context(), r.key("ended")).Err())
	})
}

func TestWaitOutlastsItsConnections(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	ctx := t.Context()
	r.enqueue(t, "x")
	w := r.wait(t, ctx, 1, "x")
	for range 3 {
		must(t, r.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
		must(t, r.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
	}
	r.awaitSubscriptions(t, 1)
	must(t, r.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	r.ack(t, r.popOne(t, "x"), "1") // which nobody may hear
	equal(t, "result", string(w.get(t).Result), "1")
}

// awaitSubscriptions waits until n connections listen for ends.
func (r *rig) awaitSubscriptions(t *testing.T, n int64) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		got, err := r.PubSubNumSub(t.Context(), r.key("ended")).Result()
		must(t, err)
		if got[r.key("ended")] == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v in 10 s, want %d", got, n)
		}
	}
}

func TestAWaitWhoseFirstLookFailsSaysSo(t *testing.T) {
	t.Parallel()
	r, server := onOwnRedis(t)
	r.enqueue(t, "x", queue.In(time.Hour))
	server.Kill()
	t.Cleanup(server.Restart) // for the check of the keys
	_, err := r.q.Wait(t.Context(), "x")
	if err == nil || errors.Is(err, duly.ErrNotFound) {
		t.Fatalf("got %v without Redis", err)
	}
}

func TestWaitEndsWithItsContextAndWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	r.enqueue(t, "x", queue.In(time.Hour))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.q.Wait(ended, "x")
	wants(t, err, context.Canceled)
	w := r.wait(t, t.Context(), 1, "x")
	must(t, r.under.Close())
	select {
	case <-w.over:
		wants(t, w.err, redis.ErrClosed)
	case <-time.After(20 * time.Second):
		t.Fatal("Wait goes on, 20 s after its client was closed")
	}
}

func TestAFullRedisStillLetsTasksBeWaitedFor(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	r.enqueue(t, "x")
	r.fill(t)
	w := r.wait(t, t.Context(), 1, "x")
	r.ack(t, r.popOne(t, "x"), "1")
	equal(t, "result", string(w.get(t).Result), "1")
}
