// Package locktest tests code that takes locks, without a Redis server; and it
// tests lockers on a Redis of yours.
//
// There are only a few types. A [Fake] is a Redis in memory with the locker of
// one process on it, and the faults that such a process must survive.
// [TestLocker] holds what every locker must do, and a [Harness] is what it drives
// lockers with.
//
//	func TestNothingIsSoldAfterTheLockIsLost(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			fake := locktest.New(t, lock.Config{})
//			till := shop.NewTill(fake.Locker())
//			till.BeforeWriting = func() {
//				fake.Break()
//				time.Sleep(time.Minute) // at no cost: the bubble's clock jumps
//			}
//			if err := till.Sell(t.Context(), "phone"); !errors.Is(err, lock.ErrExpired) {
//				t.Fatalf("sold without the lock: %v", err)
//			}
//		})
//	}
//
// # Time
//
// A fake's clock is time.Now, for what Redis counts and for what a lease counts.
// Inside a bubble of testing/synctest that is the bubble's clock: leases end and
// waiters give up at the very moment that they should, and a day costs nothing.
// Make the fake inside the bubble then, with the bubble's t. Elsewhere the clock
// is the real one.
//
// # Guarantees
//
// The lockers of a Fake are those of package lock with all their scripts, and
// pass TestLocker. They use no port and no file. What a test leaves behind,
// such as leases that are kept alive, ends with it.
//
// # Caveats
//
// The Redis in memory is miniredis, which is for speed and not for proof: it is
// one node without replicas, and says nothing of what a lock costs.
package locktest
