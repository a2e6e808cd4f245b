package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
)

// lockTTL is how long an order stays locked after a payment died in the middle.
const lockTTL = 2 * time.Second

// orderLock is what all that changes an order excludes each other by.
func orderLock(id string) string { return "order:" + id }

// deadlineGrain rounds payment deadlines up, so that the cancel tasks of one
// moment can be enqueued together. Nobody is promised the microsecond.
const deadlineGrain = 50 * time.Millisecond

// errGone: sold out for good. Every piece is paid for, so none comes back.
var errGone = errors.New("sold out for good")

// A shop sells. Whoever changes an order holds its lock: the payment callback
// takes it, and each task of the order has it as its LockKey and is not even
// popped while another holds it. The lock is what makes them take turns; its
// fence, which the store is handed, is what keeps a holder who slept through the
// end of his turn from acting on it.
type shop struct {
	store *store

	// What only the selling side has.
	queue    *queue.Queue
	items    []string
	deadline time.Duration
	board    *board
	owed     chan<- struct{} // tells the outbox that an order owes tasks
}

// place sells a piece of an item to a buyer, who then has until the order's
// PayBy. Asked again it answers with the same order, and old is true. No task is
// enqueued here: the order owes them, see outbox.
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
// is a *stateError. To pay twice is to pay once. While a task of the order runs it
// waits, for no longer than a lease if that worker has died, and then goes before
// the tasks that wait too.
func (s *shop) pay(ctx context.Context, id string) (order, error) {
	err := s.queue.Locker().Do(ctx, orderLock(id), lockTTL, func(ctx context.Context, l *lock.Lease) error {
		return s.store.pay(ctx, id, l.Fence())
	})
	if is := (*stateError)(nil); errors.As(err, &is) && is.state != cancelled {
		err = nil
	}
	if err != nil {
		return order{}, fmt.Errorf("pay order %q: %w", id, err)
	}
	s.wake()
	return s.store.order(ctx, id)
}

// remind reminds a buyer who has not paid yet. Like any mail it may come twice.
// Most have paid: to look first spares the database's one writer.
func (s *shop) remind(ctx context.Context, id string, fence uint64) error {
	o, err := s.store.order(ctx, id)
	if err == nil && o.State == reserved {
		err = s.store.remind(ctx, id, fence)
	}
	if is := (*stateError)(nil); errors.As(err, &is) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remind of order %q: %w", id, err)
	}
	return nil
}

// cancelIfUnpaid ends an order whose time to pay is over. One that was paid in
// time, or is cancelled already, stays as it is.
func (s *shop) cancelIfUnpaid(ctx context.Context, id string, fence uint64) error {
	err := s.store.cancel(ctx, id, fence)
	if is := (*stateError)(nil); errors.As(err, &is) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cancel order %q: %w", id, err)
	}
	return nil
}

// ship sends the parcel of a paid order, once, and returns it. Repeated, it
// returns the one that has left.
func (s *shop) ship(ctx context.Context, id string, fence uint64) (parcel, error) {
	p, err := s.store.ship(ctx, id, parcel{Tracking: rand.Text()[:12]}, fence)
	if err != nil {
		return parcel{}, fmt.Errorf("ship order %q: %w", id, err)
	}
	return p, nil
}

// wake tells the outbox, which may have been told already.
func (s *shop) wake() {
	select {
	case s.owed <- struct{}{}:
	default:
	}
}
