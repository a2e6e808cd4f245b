package workertest

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
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

// maxRuns bounds a RunDue.
const maxRuns = 100_000

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
// A task that has expired by the source's clock is not run but settled.
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
			verdict = run(ctx, h, ds[0], src)
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

// run makes one attempt and judges its answer.
func run(ctx context.Context, h duly.Handler, d *duly.Delivery, reporter duly.Reporter) (verdict duly.Settlement) {
	timeout := runTimeout
	if d.Timeout > 0 {
		timeout = d.Timeout
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout, duly.ErrTimeout)
	defer stop()
	d.ReportTo(reporter)
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
