package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// An outbox enqueues the tasks that orders owe.
//
// An order lives in the database and its tasks live in Redis, and no
// transaction spans the two. So the transaction that changes an order also
// writes into its row which tasks it owes; the outbox enqueues what is owed and
// then clears the debt. A crash between any two of these steps repeats a step
// and skips none: a task that is in the queue already is kept, for its ID is
// the order's, and one that has run meanwhile finds its work done.
//
// To enqueue before the commit is tempting, for it needs no column. But then a
// task can run before the commit that it belongs to, and must tell an order that
// is not there yet from one that never will be. It also makes the shop stop
// selling while Redis is away; the outbox just catches up.
type outbox struct {
	store  *store
	queue  *queue.Queue
	notice time.Duration // how long before its deadline an order is reminded of
	owed   <-chan struct{}
	warn   func(error) // told when it starts to fail, and nil when it is well again
}

// outboxBatch bounds one look at the orders that owe.
const outboxBatch = 100

// run works until ctx ends. What it was not told of, such as the debts that a
// crash left behind, it finds by itself.
func (o *outbox) run(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	failing := false
	for {
		n, err := o.flush(ctx)
		if ctx.Err() != nil {
			return
		}
		if (err != nil) != failing {
			failing = err != nil
			o.warn(err)
		}
		if n == outboxBatch && err == nil {
			continue
		}
		select {
		case <-o.owed:
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// flush settles the debts of a batch of orders, and returns how many there were.
func (o *outbox) flush(ctx context.Context) (int, error) {
	orders, err := o.store.owing(ctx, outboxBatch)
	if err != nil || len(orders) == 0 {
		return 0, wrap("outbox", err)
	}
	var paid []order
	unpaid := make(map[time.Time][]order)
	for _, order := range orders {
		if order.owes == owesShip {
			paid = append(paid, order)
		} else {
			unpaid[order.PayBy] = append(unpaid[order.PayBy], order)
		}
	}
	done, errs := orders[:0], []error{}
	take := func(group []order, err error) {
		if err == nil {
			done = append(done, group...)
		}
		errs = append(errs, err)
	}
	take(paid, o.ship(ctx, paid))
	for payBy, group := range unpaid {
		take(group, o.expect(ctx, payBy, group))
	}
	errs = append(errs, o.store.settled(ctx, done))
	return len(orders), wrap("outbox", errors.Join(errs...))
}

// expect enqueues the reminders and the cancel tasks of orders that are to be paid
// by the same moment. The delays are counted from Redis's now, so that a clock
// that differs from this one shortens nobody's time to pay.
func (o *outbox) expect(ctx context.Context, payBy time.Time, orders []order) error {
	cancels := tasksOf(orders, func(o order) duly.Task { return cancelOrder.Task(orderArgs{o.ID}) })
	if _, err := o.queue.EnqueueMany(ctx, cancels, queue.In(time.Until(payBy))); err != nil {
		return err
	}
	reminders := tasksOf(orders, func(o order) duly.Task { return remindOrder.Task(remindArgs{orderArgs{o.ID}, o.PayBy}) })
	_, err := o.queue.EnqueueMany(ctx, reminders, queue.In(time.Until(payBy)-o.notice))
	return err
}

// ship enqueues the shipping of paid orders and cancels their cancel tasks. One
// that is running already finds the order paid. So do the reminders: they are soon
// over, and to call for each would cost more than to let it come.
func (o *outbox) ship(ctx context.Context, orders []order) error {
	ships := tasksOf(orders, func(o order) duly.Task { return shipOrder.Task(orderArgs{o.ID}) })
	if _, err := o.queue.EnqueueMany(ctx, ships); err != nil {
		return err
	}
	var cancels errgroup.Group
	cancels.SetLimit(8)
	for _, order := range orders {
		cancels.Go(func() error {
			_, err := o.queue.Cancel(ctx, cancelID(order.ID))
			return err
		})
	}
	return cancels.Wait()
}

func tasksOf(orders []order, task func(order) duly.Task) []duly.Task {
	tasks := make([]duly.Task, len(orders))
	for i, order := range orders {
		tasks[i] = task(order)
	}
	return tasks
}

// wrap adds what was being done to an error, if there is one.
func wrap(what string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}
