package main

import (
	"context"
	"errors"
	"time"

	"github.com/dulyhq/duly"
)

// orderArgs are the arguments of both kinds of task. They name the order and
// nothing else: the handler asks the database how it stands by then.
type orderArgs struct {
	Order string `json:"order"`
}

// What is to be done about an order. The business keys make a second enqueue no
// second task.
//
// cancelOrder has no LockKey: its handler takes the order's lock itself, in the
// same way as the payment callback that it races with.
var (
	cancelOrder = duly.Kind[orderArgs]{
		Name:    "order.cancel",
		ID:      func(a orderArgs) string { return cancelID(a.Order) },
		Timeout: 10 * time.Second,
	}
	shipOrder = duly.Kind[orderArgs]{
		Name:        "order.ship",
		ID:          func(a orderArgs) string { return "ship:" + a.Order },
		MaxAttempts: 200, // paid is paid
		Timeout:     10 * time.Second,
	}
)

func cancelID(order string) string { return "cancel:" + order }

// register tells a worker's mux how to handle the tasks of a shop.
func register(mux *duly.Mux, s *shop, c carrier) {
	cancelOrder.Handle(mux, func(ctx context.Context, a orderArgs, _ *duly.Delivery) error {
		return hopeless(s.cancelIfUnpaid(ctx, a.Order))
	})
	shipOrder.Handle(mux, func(ctx context.Context, a orderArgs, d *duly.Delivery) error {
		return c.collect(ctx, func() error { return hopeless(s.ship(ctx, a.Order, d.Fence)) })
	})
}

// hopeless buries a task whose order cannot be found or is in a state that no
// retry will change. Neither can happen; if it does, somebody is to look at it.
func hopeless(err error) error {
	if is := (*stateError)(nil); errors.As(err, &is) || errors.Is(err, errNoOrder) {
		return duly.Bury(err)
	}
	return err
}
