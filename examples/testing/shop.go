// Package shop is a small shop whose orders are cancelled if they are not paid in
// time. Its test shows how handlers are tested: without Redis, and without waiting.
package shop

import (
	"context"
	"errors"
	"time"

	"github.com/dulyhq/duly"
)

// CancelArgs are the arguments of order.cancel.
type CancelArgs struct{ OrderID string }

// CancelOrder cancels an order that is not paid.
var CancelOrder = duly.Kind[CancelArgs]{
	Name:    "order.cancel",
	ID:      func(a CancelArgs) string { return "cancel:" + a.OrderID },
	LockKey: func(a CancelArgs) string { return "order:" + a.OrderID },
}

// PayWithin is how long a buyer has to pay.
const PayWithin = 15 * time.Minute

// ErrTooLate means that another has written to the order since.
var ErrTooLate = errors.New("shop: superseded")

// A Shop asks for what it needs, not for a queue: in the program Later enqueues on
// a queue, in a test on a source in memory.
type Shop struct {
	Later func(ctx context.Context, task duly.Task, in time.Duration) error
	Bank  func(ctx context.Context, orderID string) (paid bool, err error)

	Orders map[string]string // by ID: open, paid or cancelled
	Fences map[string]uint64 // by ID: the highest that has written
}

// Order takes an order.
func (s *Shop) Order(ctx context.Context, id string) error {
	s.Orders[id] = "open"
	return s.Later(ctx, CancelOrder.Task(CancelArgs{id}), PayWithin)
}

// Handler runs the shop's tasks.
func (s *Shop) Handler() duly.Handler {
	mux := duly.NewMux()
	CancelOrder.Handle(mux, s.cancelIfUnpaid)
	return mux
}

func (s *Shop) cancelIfUnpaid(ctx context.Context, a CancelArgs, d *duly.Delivery) error {
	paid, err := s.Bank(ctx, a.OrderID)
	if err != nil {
		return err // it is tried again, later and later
	}
	if d.Fence < s.Fences[a.OrderID] {
		return duly.Drop(ErrTooLate)
	}
	s.Fences[a.OrderID] = d.Fence
	if paid {
		s.Orders[a.OrderID] = "paid"
	} else {
		s.Orders[a.OrderID] = "cancelled"
	}
	return nil
}
