package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
)

// errGoexit is the failure of a handler that ended its goroutine.
var errGoexit = errors.New("worker: handler called runtime.Goexit")

// A PanicError is the failure of a handler that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if that was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// An executor takes one delivery from start to verdict.
type executor struct {
	handler      duly.Handler
	base         context.Context           //nolint:containedctx // what handlers' contexts are made from
	stopped      atomic.Pointer[time.Time] // when base was ended
	timeout      time.Duration
	maxAttempts  int
	backoff      Backoff
	unknownDelay time.Duration
	log          *zap.Logger
	counters     *counters
	running      atomic.Int64 // of this Run; counters has all
	unknown      rareLog
}

// execute runs the handler of a flight and hands its verdict to the settler.
// The deferred parts also run if the handler, or a backoff, ends this goroutine.
func (x *executor) execute(f *flight) {
	if verdict, useless := x.useless(f); useless {
		f.expire()
		f.settler.put(f, verdict)
		return
	}
	timeout := x.timeout
	if f.Timeout > 0 {
		timeout = f.Timeout
	}
	if !f.start(x.base, &x.stopped, timeout) {
		x.unstarted(f)
		return
	}
	x.running.Add(1)
	x.counters.running.Add(1)
	answer := errGoexit
	verdict := x.failure(f.Delivery, errGoexit)
	defer func() {
		f.ctx.end(nil)
		x.counters.running.Add(-1)
		x.running.Add(-1)
		if f.Every != "" && !f.wasCancelled() { // else it was the last tick
			verdict.Delivery = f.Delivery
			verdict = EndTick(verdict, f.now())
		}
		x.tell(f.Delivery, &verdict)
		f.settler.put(f, verdict)
	}()
	defer func() {
		if verdict = x.judge(&f.ctx, f.Delivery, answer); verdict.Action != duly.Acked && f.wasCancelled() {
			verdict = x.cancelled(verdict.Err)
		}
	}()
	answer = x.call(&f.ctx, f.Delivery)
}

// useless is the verdict on a task that has expired, or is too late for its tick.
func (x *executor) useless(f *flight) (verdict duly.Settlement, useless bool) {
	if f.Expires.IsZero() && f.Every == "" {
		return verdict, false // as most, which need no clock
	}
	now := f.now()
	if verdict, useless = f.Expired(now); useless {
		x.expired(f.Delivery, &verdict)
	} else if verdict, useless = SkipTick(f.Delivery, now); useless {
		x.skipped(f.Delivery, &verdict)
	}
	return verdict, useless
}

// unstarted settles a flight that was lost, or cancelled, before it began.
func (x *executor) unstarted(f *flight) {
	verdict := duly.Settlement{Action: duly.Released} // which finds it lost
	if f.wasCancelled() {
		verdict = x.cancelled(nil)
		x.tell(f.Delivery, &verdict)
	}
	f.settler.put(f, verdict)
}

// cancelled is the verdict on a run that was cancelled before its handler was done,
// or called. Err is what that returned.
func (x *executor) cancelled(err error) duly.Settlement {
	x.counters.cancelled.Add(1)
	switch {
	case err == nil:
		err = duly.ErrCancelled
	case !errors.Is(err, duly.ErrCancelled):
		err = fmt.Errorf("%w: %w", duly.ErrCancelled, err)
	}
	return duly.Settlement{Action: duly.Dropped, Err: err}
}

// expired logs that no attempt is made.
func (x *executor) expired(d *duly.Delivery, verdict *duly.Settlement) {
	x.counters.expired.Add(1)
	level := zap.InfoLevel
	if verdict.Action == duly.Buried {
		level = zap.WarnLevel
	}
	x.logFor(d).Log(level, "task expired", zap.String("action", string(verdict.Action)), zap.Time("expires", d.Expires))
}

// skipped logs that a tick is not run.
func (x *executor) skipped(d *duly.Delivery, verdict *duly.Settlement) {
	if verdict.Action == duly.Buried {
		x.logFor(d).Error("recurring task buried", zap.Error(verdict.Err))
		return
	}
	x.counters.skipped.Add(1)
	x.logFor(d).Warn("tick skipped", zap.Time("due", d.Due), zap.Duration("grace", d.Grace), zap.Time("next", verdict.At))
}

func (x *executor) logFor(d *duly.Delivery) *zap.Logger {
	return x.log.With(zap.String("queue", d.Queue), zap.String("kind", d.Kind), zap.String("id", d.ID), zap.Int("attempt", d.Attempt))
}

// call calls the handler. A panic, also of the error that it returns, is an error.
func (x *executor) call(ctx context.Context, d *duly.Delivery) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = x.panicked(value)
		}
	}()
	if err = x.handler.HandleTask(ctx, d); err != nil {
		_ = err.Error() // later nothing would recover it
	}
	return err
}

func (x *executor) panicked(value any) *PanicError {
	x.counters.panics.Add(1)
	return &PanicError{Value: value, Stack: debug.Stack()}
}

// failure is the verdict on an attempt if the backoff cannot be asked.
func (x *executor) failure(d *duly.Delivery, err error) duly.Settlement {
	if d.Attempt >= x.attempts(d) {
		return duly.Settlement{Action: duly.Buried, Err: err}
	}
	return duly.Settlement{Action: duly.Retried, Err: err, In: time.Second}
}

func (x *executor) attempts(d *duly.Delivery) int {
	if d.MaxAttempts > 0 {
		return d.MaxAttempts
	}
	return x.maxAttempts
}

// judge turns the answer of a handler into what becomes of its task. A panic, as
// of a backoff, is a failure.
func (x *executor) judge(ctx context.Context, d *duly.Delivery, err error) (verdict duly.Settlement) {
	if err == nil {
		return duly.Settlement{Action: duly.Acked, Result: d.Result()}
	}
	defer func() {
		if value := recover(); value != nil {
			verdict = x.failure(d, x.panicked(value))
		}
	}()
	action, in, asked := duly.Outcome(err)
	var panicked *PanicError
	if errors.As(err, &panicked) {
		action, asked = duly.Retried, false // whatever it panicked with
	}
	verdict = duly.Settlement{Action: action, In: in, Err: err}
	if action != duly.Retried {
		return verdict
	}
	cause := context.Cause(ctx)
	switch {
	case !asked && errors.Is(err, duly.ErrNoHandler):
		x.counters.unknown.Add(1)
		return duly.Settlement{Action: duly.Released, In: x.unknownDelay, Err: err}
	case !asked && errors.Is(cause, duly.ErrStopping):
		return duly.Settlement{Action: duly.Released, Err: err}
	case errors.Is(cause, duly.ErrTimeout) && !errors.Is(err, duly.ErrTimeout):
		verdict.Err = fmt.Errorf("%w: %w", duly.ErrTimeout, err)
	}
	if d.Attempt >= x.attempts(d) {
		verdict.Action, verdict.In = duly.Buried, 0
	} else if !asked {
		verdict.In = max(x.backoff(d.Attempt, err, &d.Task), 0)
	}
	return verdict
}

// tell logs what is out of the ordinary.
func (x *executor) tell(d *duly.Delivery, verdict *duly.Settlement) {
	if verdict.Action == duly.Acked || verdict.Action == duly.Repeated && verdict.Err == nil {
		return
	}
	log := x.logFor(d)
	var panicked *PanicError
	switch {
	case errors.As(verdict.Err, &panicked):
		log.Error("handler panicked", zap.Error(verdict.Err), zap.ByteString("stack", panicked.Stack))
	case verdict.Action == duly.Dropped && errors.Is(verdict.Err, duly.ErrCancelled):
		log.Info("task cancelled", zap.Error(verdict.Err))
		return
	case errors.Is(verdict.Err, duly.ErrNoHandler):
		if x.unknown.allow(time.Now()) {
			log.Warn("no handler for this kind, given back for later", zap.Duration("in", verdict.In))
		}
		return
	}
	switch verdict.Action {
	case duly.Buried:
		log.Error("task buried", zap.Error(verdict.Err))
	case duly.Retried:
		log.Warn("task failed", zap.Error(verdict.Err), zap.Duration("retry_in", verdict.In))
	case duly.Dropped:
		log.Info("task dropped", zap.Error(verdict.Err))
	case duly.Repeated:
		if action, _, _ := duly.Outcome(verdict.Err); action == duly.Dropped {
			log.Info("tick dropped", zap.Error(verdict.Err), zap.Time("next", verdict.At))
		} else {
			log.Error("tick failed", zap.Error(verdict.Err), zap.Time("next", verdict.At))
		}
	}
}

// rareLog allows one line a minute.
type rareLog struct {
	mu   sync.Mutex
	last time.Time
}

func (r *rareLog) allow(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.IsZero() && now.Sub(r.last) < time.Minute {
		return false
	}
	r.last = now
	return true
}
