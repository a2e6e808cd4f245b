package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestOneSubscriptionServesAllWaitersAndEndsAfterTheLast(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	const n = 50
	var waits []*waiting
	ctx, cancel := context.WithCancel(t.Context())
	for i := range n {
		id := fmt.Sprint(i % 10)
		r.enqueue(t, id, queue.In(time.Hour))
		waits = append(waits, r.wait(t, ctx, i+1, id))
	}
	r.awaitSubscriptions(t, 1)
	_, err := r.q.Cancel(ctx, "0")
	must(t, err)
	for i := 0; i < n; i += 10 {
		waits[i].get(t)
	}
	cancel()
	for i, w := range waits {
		if <-w.over; i%10 != 0 {
			wants(t, w.err, context.Canceled)
		}
	}
	r.awaitSubscriptions(t, 0)
	equal(t, "waiters left", r.q.Looked(), 0)
	r.enqueue(t, "again")
	w := r.wait(t, t.Context(), 1, "again")
	r.awaitSubscriptions(t, 1)
	r.ack(t, r.popOne(t, "again"), "")
	w.get(t)
}

func TestWhatIsKeptForWaitersIsForgottenByItself(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x")
		ctx, cancel := context.WithCancel(t.Context())
		w := r.wait(t, ctx, 1, "x")
		cancel()
		<-w.over
		r.ack(t, r.popOne(t, "x"), "1")
		for _, key := range []string{"wanted", "ended"} {
			ttl, err := r.PTTL(t.Context(), r.key(key)).Result()
			must(t, err)
			if ttl <= 0 || ttl > 2*time.Minute {
				t.Errorf("%s lasts for %v", key, ttl)
			}
		}
		// And entry by entry, where others keep waiting.
		must(t, r.ZAdd(t.Context(), r.key("wanted"), zAt("x", 1)).Err())
		r.enqueue(t, "y", queue.In(time.Hour))
		ctx, cancel = context.WithCancel(t.Context())
		w = r.wait(t, ctx, 1, "y")
		cancel()
		<-w.over
		left, err := r.HLen(t.Context(), r.key("ended")).Result()
		must(t, err)
		equal(t, "ends", left, 0)
		wanted, err := r.ZRange(t.Context(), r.key("wanted"), 0, -1).Result()
		must(t, err)
		equal(t, "wanted", wanted, []string{"y"})
	})
}

func TestWhereNobodyWaitsNothingIsKeptForWaiters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.done(t, "x", "1")
		r.bury(t, "y")
		r.enqueue(t, "z")
		_, err := r.q.Cancel(t.Context(), "z")
		must(t, err)
		n, err := r.Exists(t.Context(), r.key("wanted"), r.key("ended")).Result()
		must(t, err)
		equal(t, "keys", n, 0)
	})
}

func TestAThousandWaitersOnOneQueueAreAllTold(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	const n = 1000
	tasks := many(n)
	_, err := r.q.EnqueueMany(t.Context(), tasks)
	must(t, err)
	var deliveries []*duly.Delivery
	for len(deliveries) < n {
		deliveries = append(deliveries, r.pop(t, queue.MaxBatch)...)
	}
	var returned sync.Map // ID -> when
	var all sync.WaitGroup
	for _, task := range tasks {
		all.Go(func() {
			ended, err := r.q.Wait(t.Context(), task.ID)
			returned.Store(task.ID, time.Now())
			if err != nil || string(ended.Result) != `"`+task.ID+`"` {
				t.Errorf("%s ended by %+v, %v", task.ID, ended, err)
			}
		})
	}
	r.awaitLooks(t, n)
	r.awaitSubscriptions(t, 1)
	other, _ := r.queue(t, queue.Config{}) // another process
	sent := make(map[string]time.Time, n)
	const size = 10 // of a batch
	for batch := range slices.Chunk(deliveries, size) {
		var settlements []duly.Settlement
		for _, d := range batch {
			sent[d.ID] = time.Now()
			settlements = append(settlements, duly.Settlement{Delivery: d, Action: duly.Acked, Result: []byte(`"` + d.ID + `"`)})
		}
		_, err := other.Settle(t.Context(), settlements)
		must(t, err)
	}
	all.Wait()
	var took []time.Duration
	for id, at := range sent {
		when, _ := returned.Load(id)
		took = append(took, when.(time.Time).Sub(at))
	}
	slices.Sort(took)
	t.Logf("from the settlement's call to the return: median %v, p99 %v, longest %v", took[n/2], took[n*99/100], took[n-1])
}

// A look is on a connection that has died without a word, and its caller gives up.
// Who waits next through the same Queue is not held up until the client gives up as well.
func TestASilentConnectionHoldsUpNoOtherWait(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	broken, dead := new(link), make(chan struct{})
	q := newQueue(t, r.client(t, broken), r.name, queue.Config{})
	kept := task("x")
	kept.Retain = time.Hour
	_, err := q.Enqueue(t.Context(), kept)
	must(t, err)
	deliveries, _, err := q.Pop(t.Context(), 1, time.Hour)
	must(t, err)
	_, err = q.Settle(t.Context(), []duly.Settlement{{Delivery: deliveries[0], Action: duly.Acked}})
	must(t, err)
	defer close(dead)
	broken.onReply(func() error {
		<-dead
		return nil
	})
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = q.Wait(short, "x")
	wants(t, err, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
	defer cancel()
	ended, err := q.Wait(ctx, "x")
	must(t, err)
	equal(t, "action", ended.Action, duly.Acked)
}
