// Package worker runs delayed tasks: it takes deliveries from one or more
// sources, such as queues in Redis, runs their handlers in a pool of goroutines,
// and settles what became of them.
//
// There are only a few types. A [Worker] runs until its context ends. A
// [Source] is where its deliveries come from. A [Backoff] decides when a failed
// task is tried again.
//
//	mux := duly.NewMux()
//	CancelOrder.Handle(mux, cancelOrder)
//
//	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//	defer stop()
//	err := worker.New(mux, worker.Config{Concurrency: 64}, orders).Run(ctx)
//
// # How it works
//
//	fetch ──▶ backlog ──▶ pool ──▶ settle
//	  ▲                    │ one handler a goroutine, with a deadline
//	  │                    keep: extends leases, ends what has lost its own or is cancelled
//	  └ sleeps until the next due time, a hint, or a free slot
//
// Each source has a fetcher, a keeper and a settler; the pool, its backlog and
// its slots are shared. A slot is taken before a task is popped and freed when
// it is settled, so what a worker holds is bounded. Handlers that are quick are
// fetched for ahead of time, by as much as they do in 15 ms; what has waited for
// twice that is given back for others.
//
// # Guarantees
//
//   - A handler is called for a delivery once, not before its due time, and only
//     while its lease is held.
//   - A task that has expired is not run but buried or dropped, also if it was due
//     in time and there was no slot, and also if it was to be retried.
//   - No more handlers of a kind run at once than KindLimits allows, and those that
//     wait for one another hold up no other kind.
//   - A lease is extended for as long as its handler runs. If that fails, the
//     handler's context ends before the lease does, by the local monotonic clock,
//     whatever the network does.
//   - A task is never given back while its handler runs.
//   - A run that is cancelled is told: its handler's context ends with
//     ErrCancelled, or it is not begun. Unless the handler returns nil, the task is
//     dropped. If the source's message is lost, the next extension of the lease
//     tells it, after a third of the lease at most.
//   - What a handler has set as its result is recorded if it returns nil, together with
//     that; the result of a failed attempt is not. Progress is recorded when it is
//     reported, without waiting for other tasks.
//   - A panic, or a handler that ends its goroutine, is a failed attempt.
//   - Redis being away is no error: the worker waits with a growing pause and
//     says so once, and once more when it is back.
//   - When the context ends, popping stops, what has not been started is given
//     back at its own due time, and handlers may finish for DrainTimeout. Then
//     their contexts end with ErrStopping, which costs no attempt.
//
// # Caveats
//
// A kind over its limit is popped like any other and given back: with ten thousand
// such tasks due that is 200 calls a second of a worker, for as long as they are.
// What is given back has a later due time. A kind that is often over its limit is
// better off in a queue of its own, with queue.Limits.
//
// A handler that ignores its context, also if it was cancelled, keeps its slot and
// its lease for as long as it runs. A worker that is killed leaves its tasks to
// their leases: others run them when these have run out. Run takes no signals and
// closes no client.
package worker
