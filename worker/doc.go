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
// # Recurring tasks
//
// A task that has an Every recurs: when its run is over, it is due again at the next
// tick of that schedule. [Every] and Config.Recurring keep one in a queue for as
// long as workers are started with it; any producer may enqueue one as well, due at
// what [NextTick] says, which checks the schedule too.
//
//	cfg.Recurring = []worker.Recurring{
//		worker.Every("CRON_TZ=Europe/Berlin 30 2 * * *", Report.Task(ReportArgs{})),
//		worker.Every("@every 10m", Sweep.Task(SweepArgs{})),
//	}
//
// A schedule is one of these:
//   - Five cron fields: minute, hour, day of the month, month, day of the week; or
//     @hourly, @daily, @weekly, @monthly, @yearly. They are in UTC, or in the time
//     zone that CRON_TZ= or TZ= before them names, for which each worker needs the time
//     zone database of its system or package time/tzdata.
//   - @every and a duration of 100 ms to 366 days, in whole µs. The ticks are its
//     multiples since 1970, in UTC, so that they are the same for all workers and
//     after any restart.
//
// Where clocks are put forward, a time of day that does not exist is when they are;
// where they are put back, one that comes twice is the first. But with * for the
// hour each hour of real time has its ticks. (Paul Vixie's cron does the same.)
//
// There is one occurrence at a time, whoever runs it and however it ends:
//   - Done: due again at the first tick after now. Ticks that came while it ran are
//     not made up for.
//   - Missed, for no worker ran: it runs once, late, however many ticks it missed.
//     With a Grace one that is later than that is skipped; so is one that comes back
//     late from a dead worker.
//   - Failed: retried with backoff, as long as that is before the next tick. Each
//     tick has its own attempts, so a failure never delays the next one.
//   - Out of attempts, [duly.Bury] or [duly.Drop]: this tick is over, and the
//     schedule goes on. The error is logged and kept as the task's LastError.
//   - [duly.Snooze]: this tick waits, if need be past others.
//   - Expired, if the task has Expires: the schedule has ended.
//   - Cancelled while it ran: this run was the last, however it ends.
//   - Its workers died, MaxCrashes times in a row, or its schedule cannot be read:
//     it goes to the dead letter and stays there, also when workers are started
//     again, which log it as an error. Revive it, or change it.
//
// Those who wait for the task are told how the run has ended that is under way or
// next: [duly.Acked] with the result if it was done, else [duly.Repeated] with the
// error. A lock key excludes ticks like other runs.
//
// To end a schedule, take it out of Recurring everywhere and cancel the task. If it
// runs, that run is the last. A worker that is started with an old Recurring changes
// the task back.
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
//   - A recurring task has one occurrence, however many workers have it in Recurring,
//     and no tick is run again once its run was settled, whoever is killed.
//   - When the context ends, popping stops, what has not been started is given
//     back at its own due time, and handlers may finish for DrainTimeout. Then
//     their contexts end with ErrStopping, which costs no attempt.
//
// # Caveats
//
// A kind over its limit is popped like any other and given back: with ten thousand
// such tasks due that is 200 calls a second of a worker, for as long as they are.
// What is given back has a later due time, from which a Grace is counted. A kind that
// is often over its limit is better off in a queue of its own, with queue.Limits.
//
// A handler that ignores its context, also if it was cancelled, keeps its slot and
// its lease for as long as it runs. A worker that is killed leaves its tasks to
// their leases: others run them when these have run out. Run takes no signals and
// closes no client.
package worker
