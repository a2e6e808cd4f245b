// Package workertest tests handlers, and code that enqueues, without Redis; and
// it tests sources of deliveries.
//
// There are only a few types. A [Source] is a queue in memory whose clock a test
// can move. [RunDue] runs what is due in it through a handler, and the Require
// functions say what must wait there. [TestSource] holds what every
// worker.Source must do, and a [Harness] is what it drives one with.
//
//	func TestUnpaidOrderIsCancelled(t *testing.T) {
//		src := workertest.NewSource("orders")
//		shop := newShop(func(ctx context.Context, task duly.Task, in time.Duration) error {
//			_, err := src.Enqueue(ctx, task, workertest.In(in))
//			return err
//		})
//		shop.Order("42")
//		workertest.RequireDue(t, src, "cancel:42", 15*time.Minute)
//
//		src.Advance(15 * time.Minute)
//		runs, err := workertest.RunDue(t.Context(), src, shop.Handler())
//		if err != nil || len(runs) != 1 || runs[0].Action != duly.Acked {
//			t.Fatalf("got %v, %v", runs, err)
//		}
//	}
//
// # Time
//
// A source's clock is time.Now and what [Source.Advance] has added to it. So a
// plain test jumps to the due time, and one in a bubble of testing/synctest
// sleeps until then, with a worker running if it likes: both see the same
// source.
//
// # Guarantees
//
// A Source has the methods of *queue.Queue that it has under the same names and
// does in them what a queue does: duplicates are kept, the earliest is popped
// first, leases run out, fences rise, tasks of one lock key run one at a time, done
// tasks are kept for as long as they ask, and Wait returns how a task has ended.
// Both pass TestSource.
//
// # Caveats
//
// The types of this package are its own, not those of package queue, which needs
// Redis; only those of package duly, such as [duly.Ended], are the same. Let code
// that is to be tested with a Source ask for functions, as above and in
// examples/testing. Code that asks for a *queue.Queue is tested with one on
// miniredis. To run a recurring task give it its Every and enqueue it. A Source has
// no queue lock, no Locker, no pause and no limits: code that takes a lock beside a
// handler is tested with package lock/locktest.
package workertest
