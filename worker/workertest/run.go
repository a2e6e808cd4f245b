package workertest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// What RunDue does as a worker with a zero Config does.
const (
	runAttempts = 20
	runTimeout  = 30 * time.Minute
	runUnknown  = 30 * time.Second
	backoffBase = time.Second
	backoffMost = 10 * time.Minute
)

// runLease is as long as a lease may be: nobody extends it, and a handler may
// advance the clock.
const runLease = maxLease

// maxRuns bounds a RunDue, and beginMost its wait for the source to listen.
const (
	maxRuns   = 100_000
	beginMost = 5 * time.Second
)

// ErrEndless means that RunDue has not come to an end after a hundred thousand
// deliveries: a handler snoozes for no time, or enqueues without end.
var ErrEndless = errors.New("workertest: no end of due tasks")

// RunDue runs all that is due through a handler, one task after the other in due
// order, until nothing is due; so it also runs what handlers enqueue meanwhile,
// if that is due at once. It returns how each delivery was settled, in order,
// also after an error.
//
// What a handler answers is judged as by a worker with the zero Config, with one
// difference: a failed attempt is due again after the longest time that the
// backoff may choose, 1 s doubled with every attempt up to 10 min. So a test
// that advances the clock by it can rely on the retry.
//
// A task that has expired by the source's clock is not run but settled. So is a
// tick of a recurring task that is too late for its Grace; one that was run is due
// again at the next tick after the source's now, so that what was missed runs once.
//
// If its run is cancelled, by the handler itself or from elsewhere, a handler's
// context ends as in a worker, and unless it returns nil the task is dropped. To be told
// of that RunDue waits until the source listens, for 5 s at most.
//
// Handlers run in the caller's goroutine, so they may call t.Fatal. A panic is a
// failed attempt, and the settlement's Err a [*worker.PanicError].
//
// An error means that ctx has ended, that the source failed, that a lease was
// lost (it matches [duly.ErrLeaseLost]), or [ErrEndless].
func RunDue(ctx context.Context, src worker.Source, h duly.Handler) ([]duly.Settlement, error) {
	return runDue(ctx, src, h, maxRuns)
}

func runDue(ctx context.Context, src worker.Source, h duly.Handler, most int) ([]duly.Settlement, error) {
	var done []duly.Settlement
	now := current{src: src}
	defer now.watch(ctx)()
	for range most {
		ds, _, err := src.Pop(ctx, 1, runLease)
		if err != nil {
			return done, fmt.Errorf("workertest: run due: %w", err)
		}
		if len(ds) == 0 {
			return done, nil
		}
		verdict, late := ds[0].Expired(ds[0].Popped)
		if !late {
			verdict, late = worker.SkipTick(ds[0], ds[0].Popped)
		}
		if !late {
			verdict = now.run(ctx, h, ds[0])
		}
		lost, err := src.Settle(context.WithoutCancel(ctx), []duly.Settlement{verdict})
		if err == nil && len(lost) > 0 {
			err = duly.ErrLeaseLost
		}
		if err != nil {
			return done, fmt.Errorf("workertest: run due: settle %q: %w", ds[0].ID, err)
		}
		done = append(done, verdict)
	}
	return done, ErrEndless
}

// clockOf is the time by the clock of a source that tells it, which a handler may
// have advanced, or else a guess.
func clockOf(src worker.Source, guess time.Time) time.Time {
	if clock, ok := src.(interface{ Now() time.Time }); ok {
		return clock.Now()
	}
	return guess
}

// A current is the run under way in a RunDue, which may be cancelled.
type current struct {
	src worker.Source

	mu  sync.Mutex // guards what follows
	d   *duly.Delivery
	end context.CancelCauseFunc
}

// watch listens for cancellations. It returns once that has begun, and how to end it. A
// source that is away never listens: the next Pop tells.
func (c *current) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	begun, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(ended)
		c.src.Watch(ctx, func(time.Duration) { once.Do(func() { close(begun) }) }, c.cancel)
	}()
	patience := time.NewTimer(beginMost)
	defer patience.Stop()
	select {
	case <-begun:
	case <-ended:
	case <-patience.C:
	}
	return func() {
		cancel()
		<-ended
	}
}

func (c *current) cancel(id string, fence uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.d != nil && c.d.ID == id && c.d.Fence <= fence {
		c.end(duly.ErrCancelled)
	}
}

// run makes one attempt and judges its answer. Whether it was cancelled is asked of
// the source, which alone knows for certain.
func (c *current) run(ctx context.Context, h duly.Handler, d *duly.Delivery) duly.Settlement {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.mu.Lock()
	c.d, c.end = d, end
	c.mu.Unlock()
	d.ReportTo(c.src)
	began := time.Now()
	verdict := attempt(ctx, h, d)
	if verdict.Action == duly.Acked && d.Every == "" {
		return verdict
	}
	_, cancelled, err := c.src.Extend(context.WithoutCancel(ctx), []*duly.Delivery{d}, runLease)
	switch {
	case err != nil || len(cancelled) == 0: // if the source fails, settling tells
		return worker.EndTick(verdict, clockOf(c.src, d.Popped.Add(time.Since(began))))
	case verdict.Action != duly.Acked:
		return duly.Settlement{Delivery: d, Action: duly.Dropped, Err: fmt.Errorf("%w: %w", duly.ErrCancelled, verdict.Err)}
	}
	return verdict // the last tick, and done
}

func attempt(ctx context.Context, h duly.Handler, d *duly.Delivery) (verdict duly.Settlement) {
	timeout := runTimeout
	if d.Timeout > 0 {
		timeout = d.Timeout
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout, duly.ErrTimeout)
	defer stop()
	defer func() {
		if value := recover(); value != nil {
			verdict = judge(ctx, d, &worker.PanicError{Value: value, Stack: debug.Stack()})
		}
	}()
	return judge(ctx, d, h.HandleTask(ctx, d))
}

func judge(ctx context.Context, d *duly.Delivery, err error) duly.Settlement {
	action, in, asked := duly.Outcome(err)
	var panicked *worker.PanicError
	if errors.As(err, &panicked) {
		action, asked = duly.Retried, false // whatever it panicked with
	}
	verdict := duly.Settlement{Delivery: d, Action: action, In: in, Err: err}
	if action == duly.Acked {
		verdict.Result = d.Result()
	}
	if action != duly.Retried {
		return verdict
	}
	if !asked && errors.Is(err, duly.ErrNoHandler) {
		verdict.Action, verdict.In = duly.Released, runUnknown
		return verdict
	}
	if errors.Is(context.Cause(ctx), duly.ErrTimeout) && !errors.Is(err, duly.ErrTimeout) {
		verdict.Err = fmt.Errorf("%w: %w", duly.ErrTimeout, err)
	}
	most := runAttempts
	if d.MaxAttempts > 0 {
		most = d.MaxAttempts
	}
	if d.Attempt >= most {
		verdict.Action, verdict.In = duly.Buried, 0
	} else if !asked {
		verdict.In = longestBackoff(d.Attempt)
	}
	return verdict
}

func longestBackoff(attempt int) time.Duration {
	d := backoffBase
	for ; attempt > 1 && d < backoffMost; attempt-- {
		d = min(2*d, backoffMost)
	}
	return d
}
