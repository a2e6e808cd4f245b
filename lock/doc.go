// Package lock is mutual exclusion on Redis: one holder of a name at a time,
// for a time, with a fencing token.
//
// There are only a few types. A [Locker] gives out leases on names, on one Redis
// or on a quorum of them. A [Lease] is the right to a name until a moment that
// both Redis and this process know. A [Script] is a Lua script that runs at most
// once a call; [Guarded] makes one that is a critical section under a lock
// without taking it, and [FenceCheck] one that refuses who comes late.
//
//	locker, err := lock.New(rdb, lock.Config{})
//
//	err = locker.Do(ctx, "order:42", 10*time.Second, func(ctx context.Context, l *lock.Lease) error {
//		return shop.Pay(ctx, "42", l.Fence()) // ctx ends if the lock is lost
//	})
//
// Acquire waits until its context ends; TryAcquire does not wait; AcquireAll takes
// several names or none. Do renews the lease while its function runs; a lease
// taken by hand lasts for its TTL unless it is extended, or kept alive with
// [Lease.KeepAlive]. Package locktest tests programs that use locks without Redis.
//
// # How a lock goes from one to the next
//
//	        acquire                    release, and nobody waits
//	free ─────────────▶ held ─────────────────────────────────▶ free
//	                    ▲  │ release: to the first in line
//	              claim │  ▼
//	                   granted ──▶ free   not claimed in a second
//
// Who finds a lock held stands in a line on Redis, with the same script that
// asked for it. A release grants the lock to the first in line and publishes that;
// the waiter claims it with the same script again. That makes three commands a
// handover, however many wait, and no two are woken for one lock.
//
// What is published is a hint: the script alone decides. The first waiter of each
// process also looks at the lock by itself: when it may have expired, a second
// after a handover, and every 3 seconds. A message that is lost costs that long; if
// it was the waiter's turn it has lapsed, and the waiter stands in line anew. The
// waiters of a process that has not looked for 10 seconds are dropped; one that died
// sooner than that costs the others a second when it is its turn.
//
// A locker has one subscription while somebody waits and a tenth of a second longer.
//
// # Redis keys
//
// '…' stands for Config.Prefix with the name, which is its hash tag if Prefix has
// none:
//
//	…         string  <fence>:<owner>#<random>/<random>
//	…:fence   string  the last fence; one for all names if Prefix has a hash tag
//	…:line    zset    token → place
//	…:alive   zset    process → when its waiters are dropped
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
//   - Waiters have their turn in the order of their coming, across processes, as
//     far as they are told. No newcomer overtakes one that is alive.
//   - Only the holder extends or releases, by a random token compared whole.
//   - A reply that is lost leaves no lock behind: acquiring is idempotent by
//     token, and is retried or cleaned up. Clean-up does not depend on the
//     caller's context. Only a request that the network delivers after that still
//     takes the lock, for nobody, for its TTL.
//   - A waiter that gives up leaves nothing behind; what was granted to it goes on
//     to the next.
//   - Only relative times are sent. No clock of a client is stored or compared.
//   - A key without a TTL, left by a client that died between SETNX and EXPIRE,
//     is given one and then waited for; it is never taken at once, for its maker
//     may be alive.
//
// The package's tests check recorded histories of these against a model, under
// lost replies, delays, broken links and stopped processes, and switch protections
// off one by one to see that a test fails (make mutants).
//
// # Caveats
//
// No lock with a time limit is safe against a pause: a process can stop between
// looking at its lease and using it. Where that matters, hand [Lease.Fence] to
// the store and let it refuse a fence lower than the last it saw: [FenceCheck]
// for a store in Redis, a condition on the row in SQL.
//
// A Redis that fails over may forget a lock that its replica had not received.
// Config.ReplicaAcks makes that rarer; [NewQuorum] survives the loss of a minority
// of independent nodes, and is broken in turn by nodes that restart without their
// data. Redis expires keys by its wall clock, so stepping that clock ends locks
// early or late. Under an eviction policy that takes keys with a TTL, locks can be
// evicted. With fences, none of this corrupts a store that checks them.
//
// The lock is not reentrant: who holds a name and asks for it again waits for
// itself. The GETSET recipe on a timestamp is not offered: it trusts the clocks of
// the clients, and a loser overwrites the owner's value.
//
// # Which lock
//
// A lock is kept by a database, by Redis, or by a consensus store:
//
//	                        row or advisory lock   Redis, this package   ZooKeeper, etcd
//	a holder that dies      with its connection    after its TTL         after its session: 2 to 20
//	is found out                                                         ticks [1], 60 s [2]
//	survives a failover     as the database does   no; see above         yes
//	tells of a loss         no                     yes, ahead of time    yes, by the session
//	order of waiters        of coming              of coming             of coming
//	fencing token           none; write in the     yes                   yes: zxid, revision
//	                        same transaction
//	a waiter costs          a connection           an entry in a set     a node and a watch
//	requests, free lock     1 + 1                  1 + 1                 2 + 1 [3], 1 + 1 [2]
//	taken and given back    33 µs                  192 µs                not measured
//	32 waiters: p99, max    191, 192 ms            203, 204 ms           not measured
//
// The times are of one machine with two CPUs, server and clients on it, the median
// of three rounds of make bench beside PostgreSQL's advisory locks: a lock that nobody
// wants, and one that 32 want all the time and hold for 5 ms. In the same rounds
// waiters of two Redis libraries that poll waited 4 s and more than 5 s at p99.
// Sources of the rest: [1] ZooKeeper Administrator's Guide, minSessionTimeout and
// maxSessionTimeout; [2] etcd client/v3/concurrency, a Session's default TTL and
// Mutex; [3] Apache Curator, InterProcessMutex.
//
// If what is locked lives in one SQL database, lock there: a row lock in the
// transaction that writes needs no fence. If being wrong once is not acceptable
// and nothing can check a fence, use a consensus store. Otherwise a lock on Redis is
// light: waiters cost no connection, and holders are told in time.
package lock
