package main

import (
	"context"
	"errors"
	"time"

	"github.com/dulyhq/duly"
)

// orderArgs are the arguments of a task about an order. They name it and tell
// nothing of its state: the handler asks the database how it stands by then.
type orderArgs struct {
	Order string `json:"order"`
}

// remindArgs also tell until when a reminder is of use.
type remindArgs struct {
	orderArgs
	PayBy time.Time `json:"pay_by"`
}

// What is to be done about an order. The business keys make a second enqueue no
// second task. The lock key makes them take turns with each other and with the
// payment callback: no handler locks the order, for its task has the lock, and
// d.Fence is that lock's fence.
var (
	remindOrder = duly.Kind[remindArgs]{
		Name:     "order.remind",
		ID:       func(a remindArgs) string { return remindID(a.Order) },
		LockKey:  func(a remindArgs) string { return orderLock(a.Order) },
		Timeout:  10 * time.Second,
		Expires:  func(a remindArgs) time.Time { return a.PayBy },
		OnExpiry: duly.Dropped,
	}
	cancelOrder = duly.Kind[orderArgs]{
		Name:    "order.cancel",
		ID:      func(a orderArgs) string { return cancelID(a.Order) },
		LockKey: func(a orderArgs) string { return orderLock(a.Order) },
		Timeout: 10 * time.Second,
	}
	shipOrder = duly.Kind[orderArgs]{
		Name:        "order.ship",
		ID:          func(a orderArgs) string { return shipID(a.Order) },
		LockKey:     func(a orderArgs) string { return orderLock(a.Order) },
		MaxAttempts: 200, // paid is paid
		Timeout:     10 * time.Second,
		Retain:      time.Minute, // for buyers who ask for their parcel after it has left
	}
)

func remindID(order string) string { return "remind:" + order }
func cancelID(order string) string { return "cancel:" + order }
func shipID(order string) string   { return "ship:" + order }

// register tells a worker's mux how to handle the tasks of a shop.
func register(mux *duly.Mux, s *shop, c carrier) {
	remindOrder.Handle(mux, func(ctx context.Context, a remindArgs, d *duly.Delivery) error {
		return hopeless(s.remind(ctx, a.Order, d.Fence))
	})
	cancelOrder.Handle(mux, func(ctx context.Context, a orderArgs, d *duly.Delivery) error {
		return hopeless(s.cancelIfUnpaid(ctx, a.Order, d.Fence))
	})
	shipOrder.Handle(mux, func(ctx context.Context, a orderArgs, d *duly.Delivery) error {
		return c.collect(ctx, func() error {
			p, err := s.ship(ctx, a.Order, d.Fence)
			if err != nil {
				return hopeless(err)
			}
			return d.SetResult(p)
		})
	})
	stockAudit.Handle(mux, func(ctx context.Context, _ struct{}, d *duly.Delivery) error {
		return s.store.auditStock(ctx, d.Due.Truncate(auditEvery)) // a retry is due later, and of the same tick
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
