package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly/lock"
)

// lockTTL is how long an order stays locked after its holder died.
const lockTTL = 2 * time.Second

// deadlineGrain rounds payment deadlines up, so that the cancel tasks of one
// moment can be enqueued together. Nobody is promised the microsecond.
const deadlineGrain = 50 * time.Millisecond

// errGone: sold out for good. Every piece is paid for, so none comes back.
var errGone = errors.New("sold out for good")

// A shop sells: the payment callback and the cancel task of an order change it
// under one lock, and hand the lock's fence to the store. The lock is what makes
// them take turns; the fence is what keeps a holder who slept through the end of
// his turn from acting on it.
type shop struct {
	store *store
	locks *lock.Locker

	// What only the selling side has.
	items    []string
	deadline time.Duration
	board    *board
	owed     chan<- struct{} // tells the outbox that an order owes a task
}

// place sells a piece of an item to a buyer, who then has until the order's
// PayBy. Asked again it answers with the same order, and old is true. No task is
// enqueued here: the order owes it, see outbox.
//
// The board is only a hint, some 100 ms old, to turn the crowd away without
// asking the database. Whether a piece is sold is the database's decision. Its
// price: a winner who never got his answer and asks again once all is gone is
// turned away too, and his piece comes back at the deadline.
func (s *shop) place(ctx context.Context, buyer, item string) (o order, old bool, err error) {
	if !slices.Contains(s.items, item) {
		return order{}, false, errNoItem
	}
	if shelf, ok := s.board.shelf(item); ok && shelf.Stock == 0 {
		if shelf.Reserved == 0 {
			return order{}, false, errGone
		}
		return order{}, false, errSoldOut
	}
	payBy := time.Now().Add(s.deadline + deadlineGrain).Truncate(deadlineGrain)
	o, old, err = s.store.place(ctx, order{ID: rand.Text(), Buyer: buyer, Item: item, PayBy: payBy})
	if errors.Is(err, errSoldOut) {
		s.board.empty(item)
	}
	if err != nil {
		return order{}, false, fmt.Errorf("place an order for %q: %w", item, err)
	}
	s.wake()
	return o, old, nil
}

// pay takes the money for an order, unless it has been cancelled: then the error
// is a *stateError. To pay twice is to pay once.
func (s *shop) pay(ctx context.Context, id string) (order, error) {
	err := s.change(ctx, id, s.store.pay)
	if is := (*stateError)(nil); errors.As(err, &is) && is.state != cancelled {
		err = nil
	}
	if err != nil {
		return order{}, fmt.Errorf("pay order %q: %w", id, err)
	}
	s.wake()
	return s.store.order(ctx, id)
}

// cancelIfUnpaid ends an order whose time to pay is over. One that was paid in
// time, or is cancelled already, stays as it is.
func (s *shop) cancelIfUnpaid(ctx context.Context, id string) error {
	err := s.change(ctx, id, s.store.cancel)
	if is := (*stateError)(nil); errors.As(err, &is) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cancel order %q: %w", id, err)
	}
	return nil
}

// ship sends the parcel of a paid order, once. Nobody else changes a paid order,
// so the task's own lease excludes enough and its delivery's fence serves; it
// comes from the same counter as those of the locks.
func (s *shop) ship(ctx context.Context, id string, fence uint64) error {
	if err := s.store.ship(ctx, id, fence); err != nil {
		return fmt.Errorf("ship order %q: %w", id, err)
	}
	return nil
}

// change changes an order under its lock.
func (s *shop) change(ctx context.Context, id string, f func(ctx context.Context, id string, fence uint64) error) error {
	return s.locks.Do(ctx, "order:"+id, lockTTL, func(ctx context.Context, l *lock.Lease) error {
		return f(ctx, id, l.Fence())
	})
}

// wake tells the outbox, which may have been told already.
func (s *shop) wake() {
	select {
	case s.owed <- struct{}{}:
	default:
	}
}
