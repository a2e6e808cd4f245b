package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// work lets a worker run the shop's tasks until the test ends.
func (b *bundle) work(t *testing.T) {
	t.Helper()
	mux := duly.NewMux()
	register(mux, &shop{store: b.store}, carrier{})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.New(mux, worker.Config{Recurring: schedule()}, b.queue).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// enqueue adds a task that must be new.
func (b *bundle) enqueue(t *testing.T, task duly.Task) {
	t.Helper()
	if receipt, err := b.queue.Enqueue(t.Context(), task); err != nil || receipt.Outcome != queue.Added {
		t.Fatalf("enqueue %s: %+v, %v", task.ID, receipt, err)
	}
}

func TestPaymentAndCancelTaskOfOneOrderExcludeEachOther(t *testing.T) {
	t.Parallel()
	const orders = 40
	b := setup(t, item{"phone", orders})
	b.work(t)
	var all sync.WaitGroup
	for n := range orders {
		o := b.buy(t, "buyer-"+string(rune('a'+n)))
		all.Go(func() {
			_, err := b.shop.pay(context.Background(), o.ID)
			if is := (*stateError)(nil); err != nil && (!errors.As(err, &is) || is.state != cancelled) {
				t.Error(err)
			}
		})
		cancel := cancelOrder.Task(orderArgs{o.ID})
		b.enqueue(t, cancel)
		all.Go(func() {
			if ended, err := b.queue.Wait(t.Context(), cancel.ID); err != nil && !errors.Is(err, duly.ErrNotFound) || ended.Err != nil {
				t.Errorf("cancel: %+v, %v", ended, err)
			}
		})
	}
	all.Wait()
	f := auditOf(t, b.store)
	if f.Paid+f.Cancelled != orders || f.Left != f.Cancelled || f.PaidAndCancelled != 0 || f.Oversold != 0 {
		t.Errorf("%+v, want %d that are either paid or cancelled", f, orders)
	}
}

// until waits until something is so.
func until(t *testing.T, what string, so func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for {
		yes, err := so()
		if err != nil {
			t.Fatal(err)
		}
		if yes {
			return
		}
		if sleep(ctx, time.Millisecond) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func TestNoTaskOfAnOrderRunsDuringItsPayment(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.buy(t, "ann")
	for _, task := range []duly.Task{
		remindOrder.Task(remindArgs{orderArgs{o.ID}, o.PayBy}), cancelOrder.Task(orderArgs{o.ID}), shipOrder.Task(orderArgs{o.ID}),
	} {
		b.enqueue(t, task)
	}
	err := b.queue.Locker().Do(t.Context(), orderLock(o.ID), time.Minute, func(ctx context.Context, _ *lock.Lease) error {
		if got, _, err := b.queue.Pop(ctx, 10, time.Minute); len(got) > 0 || err != nil {
			t.Errorf("popped %d, %v; want that all wait", len(got), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := b.queue.Pop(t.Context(), 10, time.Minute); len(got) != 1 || err != nil {
		t.Errorf("then popped %d, %v; want the first alone", len(got), err)
	}
}

func TestAPaymentWaitsForATaskThatRunsAndGoesBeforeThoseThatWait(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.buy(t, "ann")
	b.enqueue(t, remindOrder.Task(remindArgs{orderArgs{o.ID}, o.PayBy}))
	got, _, err := b.queue.Pop(t.Context(), 10, time.Minute)
	if err != nil || len(got) != 1 {
		t.Fatalf("popped %d, %v", len(got), err)
	}
	b.enqueue(t, cancelOrder.Task(orderArgs{o.ID}))
	paying := make(chan error, 1)
	go func() {
		_, err := b.shop.pay(context.Background(), o.ID)
		paying <- err
	}()
	until(t, "the payment stands in line", func() (bool, error) {
		info, err := b.queue.Locker().Inspect(t.Context(), orderLock(o.ID))
		return info.Waiters > 0, err
	})
	if err := b.shop.remind(t.Context(), o.ID, got[0].Fence); err != nil {
		t.Fatal(err)
	}
	if _, err := b.queue.Settle(t.Context(), []duly.Settlement{{Delivery: got[0], Action: duly.Acked}}); err != nil {
		t.Fatal(err)
	}
	b.work(t)
	if err := <-paying; err != nil {
		t.Errorf("pay: %v", err)
	}
	if f := auditOf(t, b.store); f.Reminded != 1 || f.Paid != 1 || f.Cancelled != 0 {
		t.Errorf("%+v, want the payment after the reminder and before the cancelling", f)
	}
}

func TestAReminderThatIsTooLateIsDroppedAndCounted(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.buy(t, "ann")
	b.enqueue(t, remindOrder.Task(remindArgs{orderArgs{o.ID}, time.Now().Add(-time.Second).Truncate(time.Microsecond)}))
	b.work(t)
	until(t, "it is counted as dropped", func() (bool, error) {
		stats, err := b.queue.Stats(t.Context())
		return stats.Counters["drop"] == 1, err
	})
	if f := auditOf(t, b.store); f.Reminded != 0 {
		t.Errorf("%+v, want nobody reminded", f)
	}
}

func TestTheStockIsAuditedByTheScheduleThatWorkersHave(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	b.work(t)
	until(t, "two audits are noted", func() (bool, error) {
		f, err := b.store.findings(t.Context())
		return f.Audits >= 2, err
	})
}
