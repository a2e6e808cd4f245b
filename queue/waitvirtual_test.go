package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// In virtual time nothing takes any but what waits for time to pass.
func TestAWaitIsToldByAMessageAndWithoutOneLooksWithinSeconds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end         func(t *testing.T, q *queue.Queue, d *duly.Delivery, lose func()) error
		least, most time.Duration
	}{
		"told": {func(t *testing.T, q *queue.Queue, d *duly.Delivery, _ func()) error {
			_, err := q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: duly.Acked}})
			return err
		}, 0, time.Millisecond},
		"not told": {func(_ *testing.T, _ *queue.Queue, _ *duly.Delivery, lose func()) error {
			lose()
			return nil
		}, 2 * time.Second, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rdb := redistest.Virtual(t)()
				q := newQueue(t, rdb, "orders", queue.Config{})
				_, err := q.Enqueue(t.Context(), task("x"))
				must(t, err)
				d := popFrom(t, q, 1)[0]
				over := make(chan time.Time)
				go func() {
					_, err := q.Wait(t.Context(), "x")
					must(t, err)
					over <- time.Now()
				}()
				time.Sleep(2 * time.Second) // past its first looks
				synctest.Wait()
				from := time.Now()
				must(t, c.end(t, q, d, func() { must(t, rdb.HSet(t.Context(), "duly:{orders}:ended", "x", "1:ack:").Err()) }))
				if took := (<-over).Sub(from); took < c.least || took > c.most {
					t.Errorf("Wait returned after %v, want %v to %v", took, c.least, c.most)
				}
				time.Sleep(time.Second) // its subscription ends
			})
		})
	}
}

// Those that end in one batch are said in one message.
func TestOneMessageSaysWhichOfABatchWereWaitedFor(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		sub := r.Subscribe(t.Context(), r.key("ended"))
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(t.Context())
		must(t, err)
		ds := r.leased(t, "a", "b", "c", "d")
		first, second := r.wait(t, t.Context(), 1, "a"), r.wait(t, t.Context(), 2, "c")
		r.settle(t, duly.Acked, ds["a"], ds["b"], ds["c"], ds["d"])
		message, err := sub.ReceiveMessage(t.Context())
		must(t, err)
		equal(t, "message", message.Payload, "a\nc")
		first.get(t)
		second.get(t)
	})
}
