// Package lock is mutual exclusion on Redis: one holder of a name at a time,
// for a time, with a fencing token.
//
// There are only a few types. A [Locker] gives out leases on names. A [Lease]
// is the right to a name until a moment that both Redis and this process know.
// A [Script] is a Lua script that runs at most once a call; [Guarded] makes one
// that is a critical section under a lock without taking it.
//
//	locker, err := lock.New(rdb, lock.Config{})
//
//	err = locker.Do(ctx, "order:42", 10*time.Second, func(ctx context.Context, l *lock.Lease) error {
//		return shop.Pay(ctx, "42", l.Fence()) // ctx ends if the lock is lost
//	})
//
// Acquire waits until its context ends; TryAcquire does not wait. Do renews the
// lease while its function runs; a lease taken by hand lasts for its TTL unless
// it is extended, or kept alive with [Lease.KeepAlive].
//
// # Guarantees
//
//   - Two leases on one name do not overlap by the clock of the Redis server.
//   - A lease ends locally, by the monotonic clock of this process and counted
//     from before the request was sent, ahead of the moment at which its key
//     expires: whatever the network does, the holder is told first.
//   - Fences rise strictly with every acquisition. They start from the server's
//     clock, so they keep rising after a flush, an eviction, or a failover to a
//     replica that missed the last ones, unless that server's clock is behind.
//   - Only the holder extends or releases, by a random token compared whole.
//   - A reply that is lost leaves no lock behind: acquiring is idempotent by
//     token, and is retried or cleaned up.
//   - Only relative times are sent. No clock of a client is stored or compared.
//   - A key without a TTL, left by a client that died between SETNX and EXPIRE,
//     is given one and then waited for; it is never taken at once, for its maker
//     may be alive.
//
// # Caveats
//
// No lock with a time limit is safe against a pause: a process can stop between
// looking at its lease and using it. Where that matters, hand [Lease.Fence] to
// the store and let it refuse a fence lower than the last it saw. A Redis that
// fails over may forget a lock that its replica had not received. Redis expires
// keys by its wall clock, so stepping that clock ends locks early or late.
//
// The GETSET recipe on a timestamp is not offered: it trusts the clocks of the
// clients, and a loser overwrites the owner's value.
package lock
