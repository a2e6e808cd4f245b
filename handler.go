// Package duly is the vocabulary of delayed tasks: what a task is, what a
// handler receives, and what it may answer.
//
// There are only a few types. A [Task] is work with a kind and a payload. A
// [Kind] declares a kind of task once for both sides, with a typed argument. A
// [Delivery] is one attempt at a task. A [Handler] runs deliveries; a [Mux] is
// a handler that chooses among handlers by kind.
//
//	var CancelOrder = duly.Kind[CancelArgs]{
//		Name: "order.cancel",
//		ID:   func(a CancelArgs) string { return "cancel:" + a.OrderID },
//	}
//
//	task := CancelOrder.Task(CancelArgs{OrderID: "42"}) // for a producer
//
//	mux := duly.NewMux() // for a worker
//	CancelOrder.Handle(mux, func(ctx context.Context, a CancelArgs, d *duly.Delivery) error {
//		return shop.CancelIfUnpaid(ctx, a.OrderID, d.Fence)
//	})
//
// Package queue keeps tasks in Redis until they are due, package worker runs
// them, package lock excludes them from each other. This package imports the
// standard library alone, so code that defines handlers compiles without Redis.
//
// # Guarantees
//
// A task runs at least once: it is worse to lose a task than to run it twice.
// One that expires first is not run but buried, or dropped if it asks for that.
// No task runs before its due time. While one delivery of a task holds its
// lease, there is no other.
//
// # Caveats
//
// A task can run twice: its worker may die after the work and before the
// answer, or be paused for longer than its lease. Make handlers idempotent, or
// give [Delivery.Fence] to the store that they write to and let the store
// refuse a fence lower than the last it saw.
package duly

import (
	"context"
	"errors"
	"time"
)

// A Task is a piece of work to be run when it is due. Which fields may be left
// out is said at each; their limits are checked by the queue that takes the
// task.
type Task struct {
	// ID is the business key, unique in its queue for as long as the task is
	// there: a second task of the same ID is no second task. At most 512 bytes.
	// Default: a time-ordered UUID.
	ID string

	// Kind chooses the handler. Required, at most 200 bytes.
	Kind string

	// Payload is the handler's input, opaque to the queue. At most 1 MiB unless
	// the queue is configured otherwise. Default: empty.
	Payload []byte

	// LockKey names what the task works on: of those that share it in a queue one
	// runs at a time, in due order, and none while the application holds the lock of
	// that name. One that has to wait holds no slot and burns no attempt. At most 512
	// bytes. Its handler has that lock, with Delivery.Fence: to ask for it again is to
	// wait for oneself. Default: none.
	LockKey string

	// Headers travel with the task, for tracing and the like. Default: none.
	Headers map[string]string

	// MaxAttempts is how often the task may fail before it is buried in the
	// dead letter. Default: the worker's, 20.
	MaxAttempts int

	// Timeout bounds one attempt: the handler's context then ends with the
	// cause ErrTimeout. Default: the worker's, 30 minutes.
	Timeout time.Duration

	// Expires is when the task becomes useless, by the server's clock: an attempt
	// that has not started by then is not made, be it the first or a retry. A
	// worker knows that clock but for the time that the answer to its pop took. It is
	// noticed when the task is popped; until then the task is due. In whole µs; at most
	// the year 2255. Default: never.
	Expires time.Time

	// OnExpiry is what then becomes of it: Buried, with [ErrExpired], or Dropped.
	// Default: Buried.
	OnExpiry Action

	// Every makes the task recur: when a worker has run it, it is due again at the
	// next tick of this schedule, under the same ID and never twice at a time. It
	// is read by workers, as package worker says; a queue only keeps it, and its
	// first run is when Enqueue says. Such a task needs an ID. At most 200 bytes.
	// Default: the task runs once.
	Every string

	// Grace is how late an attempt at a recurring task may start, counted from
	// when it was due; one that cannot is skipped, and the task waits for its next
	// tick. Default: none is skipped, it runs once, however late.
	Grace time.Duration

	// Retain is how long the record of the task and its result are kept once a
	// handler is done with it, counted from then by the server's clock. A kept task
	// is no obstacle to a new one of its ID, which takes its place. It goes without
	// Every, since a task that recurs is never done. At most a year.
	// Default: not at all.
	Retain time.Duration

	err error
}

// Err is why the task could not be made, such as an argument that cannot be
// encoded. A queue refuses to take a task with an error.
func (t Task) Err() error { return t.err }

// A Delivery is one attempt at a task, handed to a handler under a lease. It
// must not be changed but by its methods, nor kept after the handler has returned.
type Delivery struct {
	Task

	// Queue is the name of the queue that the task came from.
	Queue string

	// Due is when the task might run, and Popped when it was handed out, both
	// by the clock of the Redis server, in µs. Popped is never before Due.
	Due, Popped time.Time

	// Attempt counts the attempts at this task from 1, this one included.
	// Attempts that were snoozed, released or cut short by a crash burn none.
	Attempt int

	// Crashes counts the leases of this task that ran out since an attempt at it was
	// last done or failed: its worker died, or was paused for longer than the lease. A
	// [Snooze] leaves it as it is.
	Crashes int

	// Fence rises with every delivery of a task, also across crashes: a store
	// that remembers the highest fence it saw can refuse a delivery that has
	// been superseded.
	Fence uint64

	result   []byte // see SetResult
	reporter Reporter
}

// A Handler runs tasks.
//
// HandleTask returns nil when the task is done. An error means that it failed
// and is to be retried with backoff, up to its MaxAttempts; [RetryIn], [Snooze],
// [Bury] and [Drop] answer otherwise. A panic counts as an error.
//
// The context ends when the task's Timeout is over, when the run is cancelled,
// when the lease is lost, or when the worker stops and has waited long enough;
// context.Cause tells which: [ErrTimeout], [ErrCancelled], [ErrLeaseLost] or
// [ErrStopping]. The worker waits for HandleTask to return in any case, for a task
// never runs twice at a time by its own doing.
//
// HandleTask is called from many goroutines at once.
type Handler interface {
	HandleTask(ctx context.Context, d *Delivery) error
}

// A HandlerFunc is a function that is a [Handler].
type HandlerFunc func(ctx context.Context, d *Delivery) error

// HandleTask calls f.
func (f HandlerFunc) HandleTask(ctx context.Context, d *Delivery) error { return f(ctx, d) }

// A Middleware wraps a handler in another, to log, measure or guard it.
type Middleware func(Handler) Handler

// Why a handler's context ended: its context.Cause.
var (
	// ErrLeaseLost: the lease ran out or went to another worker. The task runs
	// again, perhaps already; what this attempt answers is not recorded.
	ErrLeaseLost = errors.New("duly: lease lost")

	// ErrCancelled: the task was cancelled while it ran. Whatever error the handler
	// returns, the task is gone: it is not retried, buried or, if it recurs, due
	// again. Nil says that it was done all the same.
	ErrCancelled = errors.New("duly: task cancelled")

	// ErrTimeout: the attempt took longer than its Timeout.
	ErrTimeout = errors.New("duly: task timed out")

	// ErrStopping: the worker stops and its drain time is over. An error that
	// the handler returns then burns no attempt.
	ErrStopping = errors.New("duly: worker is stopping")
)
