package worker

import "sync/atomic"

// Stats counts what a worker has done since it was made.
type Stats struct {
	// Running counts the handlers that run now.
	Running int

	// Acked, Dropped, Retried, Released, Buried and Repeated count settled
	// deliveries; Repeated are those of recurring tasks, done or not.
	Acked, Dropped, Retried, Released, Buried, Repeated int64

	// Expired counts the deliveries whose task had become useless. They count as
	// Dropped or Buried too, or as Lost.
	Expired int64

	// Skipped counts the ticks that were too late for their Grace. They count as
	// Repeated too, or as Lost.
	Skipped int64

	// Limited counts the deliveries given back because as many of their kind ran as
	// Config.KindLimits allows. They count as Released too, or as Lost.
	Limited int64

	// Cancelled counts the deliveries that were cancelled before their handler was
	// done, if the worker was told before it was over. They count as Dropped too, or
	// as Lost.
	Cancelled int64

	// Lost counts the deliveries whose lease was lost before they were settled:
	// they run again.
	Lost int64

	// Panics and Unknown count the attempts that panicked, and the deliveries of
	// a kind without a handler.
	Panics, Unknown int64

	// Stuck counts the handlers that still ran when Run gave up on them.
	Stuck int64
}

type counters struct {
	running, acked, dropped, retried, released, buried, repeated       atomic.Int64
	expired, skipped, limited, cancelled, lost, panics, unknown, stuck atomic.Int64
}

// Stats counts what the worker has done. It may be called at any time.
func (w *Worker) Stats() Stats {
	c := &w.counters
	return Stats{
		Running: int(c.running.Load()), Acked: c.acked.Load(), Dropped: c.dropped.Load(), Retried: c.retried.Load(),
		Released: c.released.Load(), Buried: c.buried.Load(), Repeated: c.repeated.Load(),
		Expired: c.expired.Load(), Skipped: c.skipped.Load(), Limited: c.limited.Load(),
		Cancelled: c.cancelled.Load(), Lost: c.lost.Load(), Panics: c.panics.Load(), Unknown: c.unknown.Load(), Stuck: c.stuck.Load(),
	}
}
