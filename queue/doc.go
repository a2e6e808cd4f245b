// Package queue keeps delayed tasks in Redis: it takes them, hands them out
// when they are due, and records what became of them.
//
// There are only a few types. A [Queue] is a named set of tasks. A [Receipt]
// answers an Enqueue. An [Info] shows a task as it stands in the queue. A
// [duly.Ended] tells one who waited for it how it ended. What is handed out is a
// [duly.Delivery], and what ends it a [duly.Settlement].
//
//	orders, err := queue.New(rdb, "orders", queue.Config{})
//
//	receipt, err := orders.Enqueue(ctx, CancelOrder.Task(args), queue.In(15*time.Minute))
//	state, err := orders.Cancel(ctx, "cancel:42") // paid in time
//	ended, err := orders.Wait(ctx, receipt.ID)    // its result, or why there is none
//
//	deliveries, wait, err := orders.Pop(ctx, 100, 15*time.Second)
//	lost, err := orders.Settle(ctx, settlements)
//
// Package worker does the popping and settling for a program with handlers.
//
// # States
//
// A task is in exactly one state, and gone once it is acknowledged, or when it has
// then been kept for as long as it asks for:
//
//	        Enqueue             Pop                Settle: ack, drop
//	(none) ─────────▶ due ─────────────▶ leased ─────────────────────▶ (none)
//	                  ▲ ▲                 │  │ │                          ▲
//	                  │ └─────────────────┘  │ │ Settle: ack, with Retain │
//	                  │  Settle: retry,      │ └─────────▶ done ──────────┘
//	                  │  release, repeat;    │               Retain is over
//	                  │  lease ran out       │ Settle: bury
//	                  │                      │ or too many crashes
//	                  │                      ▼
//	                  └──────────────────── dead ──▶ (none)  Purge
//	                          Revive
//
// Due is a comparison, not a stage: a scheduled, a ready and a retrying task
// differ only in when they are due. Cancel, Remove and Reschedule act on due
// tasks. CancelRunning marks a leased one too: however its run ends, by Settle or
// with its lease, the task is then gone. A done task is a record of what was: Enqueue
// takes a new one of its ID as if it were not there, and nothing of it is left then.
//
// # Exclusive tasks
//
// Tasks that share a LockKey run one at a time, in due order, across all workers;
// and while the application holds the same name by [Queue.Locker], none of them
// does. Pop takes the lock of the key in its own script, in the format of package
// lock: the delivery's fence is its fence, the lease its TTL.
//
//	      Pop finds the key taken
//	due ───────────────────────────▶ parked
//	 ▲                                 │ the key is let go, and it is
//	 └─────────────────────────────────┘ the first of those parked for it
//
// A parked task is due as well, for all verbs. It costs nothing until its turn: no
// slot, no attempt, no look at it. Settling the task that runs, whatever the action,
// or releasing the lease that the application has, hands the key over in the same
// script and hints it, once however many. Where a holder died, or a waiter, a pop looks
// when its lease, its TTL or its grant has ended. A task that is to be retried lets the
// next have its turn, unless it is due earlier. Who waits for the lock in the
// application goes before the tasks: one that is always waited for lets none run.
//
// # Recurring tasks
//
// A recurring task is one task all its life, at most once in the queue: a run that
// is over makes it due again, at the time that the worker read from its schedule,
// in the same step that ends the run, lets its lock key go and forgets its progress.
// Those who wait for it are told how that run ended, with its result if it was done;
// the record is never done, so it goes without Retain. Recur adds it, or changes it;
// Cancel removes it, and of a running one makes this run the last, as CancelRunning
// does, which ends it too. When that is over the task is gone. A run that was done
// nevertheless stands: those who wait get its result. Of any other they hear that it
// was cancelled. Recur brings back what was cancelled and still runs.
//
// # Redis keys
//
// The keys of a queue share one hash tag, so a script touches one cluster slot.
// Times are µs of the Redis server's clock. '…' stands for duly:{name}:
//
//	…due     zset    id → when it may run
//	…leased  zset    <fence>:<due>:<id> → when the lease ends; of a task with a lock
//	                 key <fence>:<due>@<lock key>\n<id>
//	…parked  zset    id → due, of tasks whose lock key is taken
//	…turns   zset    <lock key>\n<due>\n<id>, of the same, in the order of their turns
//	…blocked zset    lock key that tasks are parked for → when to look whether it is free
//	…dead    zset    id → when it died
//	…done    zset    id → when its record is forgotten
//	…task    hash    id → record, see below; exists exactly while the id is in one of
//	                 the above
//	…next    hash    id → <due>:<record> that takes a running task's place when it
//	                 settles, or - if nothing does, for a recurring one that was
//	                 cancelled
//	…fail    hash    id → <failed attempts>:<last error>
//	…crash   hash    id → leases in a row that ran out
//	…cancel  hash    id → the highest fence of a run that is cancelled; as long as that is leased
//	…result  hash    id → what a done task has brought, JSON
//	…progress hash   id → what was reported last of a task, JSON
//	…wanted  zset    id that somebody waits for → when that, or its end, is forgotten
//	…ended   hash    id → <µs>:<action>:<result or error>, of those; also the channel that
//	                 says their IDs, a line each. Both keys have a TTL
//	…fence   string  the last fencing token
//	…lock    string  the queue's own lock, of package lock; …lock:<name> those of its
//	                 Locker and of lock keys, held by "task <id>" while a task runs.
//	                 Who waits for one is in …{line}:lock and …{alive}:lock, and …lock:{line}:<name>
//	…pop:<i> string  <number>:<fence>:<lease end> of the last pop of one Queue value
//	…trial   string  <µs when it ends>:<leased member> of the task on its last chance
//	…conf    hash    paused; of the limits running, rate and burst; tat, the theoretical
//	                 arrival time of the rate, µs with three decimals
//	…stat    hash    counters
//	…wake    channel µs until the head of due, when that moves earlier; a word for now;
//	                 or "cancel <fence> <id>" of a run that is cancelled
//
// A record is a version byte, the lock key if there is one, and CBOR; it is written
// once and never changed by a delivery, so a retry does not carry the payload again.
// A leased member spells its own token: settling and extending are operations on that
// exact member, which a stale holder cannot name. It also carries the due time, so that
// a task that comes back keeps its place.
//
// # Guarantees
//
//   - Every verb is one script: it happens whole or not at all, validates before
//     it writes, and costs one round trip. Concurrent calls of Enqueue share one.
//   - The clock is the server's, read once a script. In counts from the server's
//     now; only At is the caller's own time, as given.
//   - Pop is a critical section under the queue's lock without taking it: while
//     a job holds [Queue.Lock], no other pops.
//   - Among due tasks that may run the earliest is popped first, ties by ID.
//   - While the lease of a task with a lock key is held, no other task and nobody in
//     the application holds that key, unless it was taken by force or evicted.
//   - A pop whose reply is lost is repeated by the next: the same deliveries come
//     again under the same fence, and nothing waits for a lease to run out.
//   - Only the newest lease settles, extends or reports progress. A late holder is
//     told so and changes nothing.
//   - The result of a task is that of the settlement that ended it, also if its reply
//     was lost and the worker settled again.
//   - [Queue.Wait] returns whichever way a task ends, also if it is not kept and also
//     if the message was lost: it looks again.
//   - What was kept long enough is missing at once, and leaves Redis by hundreds with
//     each pop, and with each settlement that keeps more.
//   - A task whose leases run out MaxCrashes times in a row is buried. Those with
//     one chance left are tried one at a time, each for a third of a lease at
//     most, so that the one that kills workers does not take along those that
//     ran beside it.
//   - A recurring task that kills its workers is buried as any other: it is dead,
//     visibly, until it is revived, or replaced by one that has changed.
//   - No more tasks are leased than Limits.Running, and in any time t no more are
//     popped than Burst + Rate × t, by all workers together and also when these die,
//     when replies are lost and when limits change at run time. A worker that waits
//     for a limit is told as soon as there is room.
//   - A run that is cancelled is neither retried, buried nor repeated. Its mark
//     carries a fence, so that no later run of the ID is hit.
//   - What cannot be decoded goes to the dead letter with its bytes kept.
//   - At Redis's memory limit new tasks are refused; popping and settling go on.
//
// # Costs
//
// A batch of 500 holds Redis for some 2 ms, and nobody else is served meanwhile.
// A task with a lock key costs Redis some 20 µs more, and half of that again if it is
// parked.
// A pending task takes some 280 bytes of Redis with an ID of 12 bytes and a
// payload of 80. What costs Redis most in a script is to print a score, so tasks
// that are due together, or were popped together, are the cheapest: bench/README.md
// has figures.
//
// A queue that has only due and leased tasks pays for the rest with one EXISTS in each
// pop and each settlement. Where there is anything else, dead tasks and limits among
// it, a pop takes up to a dozen commands more. Each end of a task at the limit of
// running ones wakes every worker that waits, as does a rate, 200 times a second at
// most unless its burst is too small for that. A kept task takes some 260 bytes with a
// payload of 20 and a result of one.
//
// # Caveats
//
// A command that was sent and not answered is reported as [ErrUnknownOutcome];
// to enqueue the same ID again is then safe. What Redis loses the queue loses:
// with appendfsync everysec a power cut can take the last second, and a failover
// what the replica had not received, for which [Config.ReplicaAcks] waits when a task
// is enqueued. What a settlement has written it can take in any case: a task then runs
// once more. Leases end early or late if the server's
// wall clock is stepped; a rate can then bring a burst too many.
package queue
