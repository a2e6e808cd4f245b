package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

func TestSmoke(t *testing.T) {
	t.Run("real", func(t *testing.T) { smoke(t, redistest.Start(t).Client()) })
	t.Run("mini", func(t *testing.T) { _, c := redistest.Mini(t); smoke(t, c) })
}

func smoke(t *testing.T, rdb redis.UniversalClient) {
	q, err := queue.New(rdb, "orders", queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	r, err := q.Enqueue(ctx, duly.Task{ID: "a", Kind: "k", Payload: []byte("p")}, queue.In(time.Hour))
	t.Log(r, err)
	r, err = q.Enqueue(ctx, duly.Task{ID: "a", Kind: "k", Payload: []byte("q")})
	t.Log(r, err)
	r, err = q.Enqueue(ctx, duly.Task{ID: "a", Kind: "k", Payload: []byte("q")}, queue.OnConflict(queue.Earliest))
	t.Log(r, err)
	ds, wait, err := q.Pop(ctx, 10, time.Second)
	t.Log(ds[0], wait, err)
	r, err = q.Enqueue(ctx, duly.Task{ID: "a", Kind: "k2", Payload: []byte("r")}, queue.OnConflict(queue.Replace))
	t.Log(r, err)
	i, err := q.Get(ctx, "a")
	t.Log(i, err)
	lost, err := q.Extend(ctx, ds, time.Second)
	t.Log(lost, err)
	lost, err = q.Settle(ctx, []duly.Settlement{{Delivery: ds[0], Action: duly.Retried, Err: errors.New("boom")}})
	t.Log(lost, err)
	lost, err = q.Settle(ctx, []duly.Settlement{{Delivery: ds[0], Action: duly.Retried, Err: errors.New("boom")}})
	t.Log(len(lost), err)
	ds, wait, err = q.Pop(ctx, 10, time.Second)
	t.Log(ds[0], wait, err)
	lost, err = q.Settle(ctx, []duly.Settlement{{Delivery: ds[0], Action: duly.Buried, Err: errors.New("boom")}})
	t.Log(lost, err)
	is, err := q.List(ctx, queue.Dead, 0, 10)
	t.Log(is, err)
	n, err := q.Revive(ctx, "a", "b")
	t.Log(n, err)
	is, err = q.Peek(ctx, 10)
	t.Log(is, err)
	st, err := q.Reschedule(ctx, "a", queue.In(time.Minute))
	t.Log(st, err)
	st, err = q.Cancel(ctx, "a")
	t.Log(st, err)
	s, err := q.Stats(ctx)
	t.Log(s, err)
	_, wait, err = q.Pop(ctx, 10, time.Second)
	t.Log(wait, err)
	for range 3 {
		rs, err := q.EnqueueMany(ctx, []duly.Task{{Kind: "k"}, {Kind: "k", ID: "z"}, {Kind: "k", ID: "z"}})
		t.Log(rs, err)
	}
}
