package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestAllOfItAtTheMemoryLimit(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)

	ctx := t.Context()
	r.limit(t, queue.Limits{Running: 50, Rate: 1_000_000, Burst: 1000})
	for i := range 20 {
		tk := task(fmt.Sprintf("k%02d", i))
		tk.LockKey = fmt.Sprint("key", i%3)
		if i%2 == 0 {
			tk.Retain = time.Hour
		} else if i%5 == 0 {
			tk.Every = "@hourly"
		}
		_, err := r.q.Enqueue(ctx, tk)
		must(t, err)
	}
	for i := range 20 {
		r.enqueue(t, fmt.Sprintf("p%02d", i))
	}
	waiter := *r
	waiter.q, _ = r.queue(t, queue.Config{}) // its looks do not lose the reply that is the pop's
	w := waiter.wait(t, ctx, 1, "p05")
	must(t, r.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	must(t, r.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err := r.q.Enqueue(ctx, task("new"))
	wants(t, err, queue.ErrFull)
	r.link.lose()
	_, _, err = r.q.Pop(ctx, 10, time.Hour)
	wants(t, err, queue.ErrUnknownOutcome)
	state, err := r.q.CancelRunning(ctx, "p01")
	must(t, err)
	equal(t, "cancelled", state, "leased")
	ds := r.pop(t, 5)
	ds = append(ds, r.pop(t, 30)...)
	for _, d := range ds {
		if d.ID == "p02" {
			_, err := r.q.CancelRunning(ctx, d.ID)
			must(t, err)
		}
	}
	_, _, err = r.q.Extend(ctx, ds, time.Hour)
	must(t, err)
	_, err = r.q.Reschedule(ctx, "k19", queue.In(time.Minute))
	must(t, err)
	_, err = r.q.Cancel(ctx, "k18")
	must(t, err)
	var ss []duly.Settlement
	for i, d := range ds {
		a := []duly.Action{duly.Acked, duly.Retried, duly.Buried, duly.Released, duly.Repeated}[i%5]
		ss = append(ss, duly.Settlement{Delivery: d, Action: a, Err: errors.New("x"), Result: []byte("1"), At: d.Popped.Add(time.Hour)})
	}
	lost, err := r.q.Settle(ctx, ss)
	must(t, err)
	equal(t, "lost", ids(lost), []string{})
	equal(t, "what ended p05", w.get(t).Action, duly.Buried)
	for ds := r.pop(t, 5); len(ds) > 0; ds = r.pop(t, 5) {
		r.settle(t, duly.Acked, ds...)
	}
	left := r.stats(t)
	equal(t, "parked, leased", []int{left.Parked, left.Leased}, []int{0, 0})
	equal(t, "tasks that have ended, pend or are dead", int(left.Counters["ack"]+left.Counters["cancelled"])+left.Due+left.Dead, 40)
}
