package worker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
)

// ErrInvalid means that a setting or an argument is out of its bounds.
var ErrInvalid = errors.New("invalid argument")

// Config holds a worker's settings; the zero value is ready to use.
type Config struct {
	// Concurrency is how many handlers run at once. Default: 10; at most 10,000.
	Concurrency int

	// Lease is how long a task stays this worker's without a word from it: a
	// dead worker's tasks run elsewhere after it. It is extended while a handler
	// runs. Default: 15 s; 100 ms to 24 h.
	Lease time.Duration

	// Timeout bounds an attempt at a task that has none of its own. Default:
	// 30 min; negative is no bound.
	Timeout time.Duration

	// MaxAttempts bounds the attempts at a task that has no bound of its own.
	// The last failure buries it. Default: 20; at least 1.
	MaxAttempts int

	// Backoff is when a failed task is tried again. Default: Exponential(1 s,
	// 10 min).
	Backoff Backoff

	// DrainTimeout is how long handlers may go on after the context of Run has
	// ended, before theirs ends. Default: 20 s; negative is none.
	DrainTimeout time.Duration

	// CancelTimeout is how long Run then waits for them to return, and for what
	// they did to be settled. Default: 5 s; not negative.
	CancelTimeout time.Duration

	// UnknownDelay is when a task of a kind without a handler is due again.
	// Default: 30 s; not negative.
	UnknownDelay time.Duration

	// Weights share the pool among sources that all have work, by their names.
	// Default: 1 each; 1 to 1,000.
	Weights map[string]int

	// Strict serves sources in the order in which New is given them: one gets a
	// slot only if those before it have nothing due, are paused or locked, or
	// cannot be reached. A pop that hangs holds up those behind it for 5 s. They can
	// starve. It goes without Weights. Default: false.
	Strict bool

	// Recurring are tasks that are to be in their sources once Run has begun; [Every]
	// makes them. One that is there and the same is left as it is, one that differs
	// is replaced. One that is taken out of this list goes on until it is cancelled.
	// Default: none.
	Recurring []Recurring

	// KindLimits bounds how many handlers of a kind run at once in this worker, by
	// kind. It holds up no other kind: what is over its limit takes no goroutine and
	// no slot. As many tasks as the limit, and a few more of a quick kind, wait in the
	// worker for up to a second; the rest are given back, with no attempt burned, and
	// come again in a second, or sooner if the kind is quick. If there are many they
	// come one by one, a hundred a second or twice as many as the handlers do, and are
	// away for 10 minutes at most. Those that wait in the worker are started in due
	// order; of those that were given back some start before others that were due
	// before them. One that waits keeps its lease, and so its place among
	// queue.Limits.Running, for a second at most; one with a LockKey does not wait. To
	// bound what all workers run, give the kind a queue of its own
	// and that a limit. Default: none; at least 1 each, of kinds that the handler knows
	// if it can tell, as a [duly.Mux] can.
	KindLimits map[string]int

	// Logger takes what happens. Task IDs, kinds and errors are logged, payloads
	// are not. Default: warnings and errors to stderr, a failed attempt being a
	// warning.
	Logger *zap.Logger
}

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 10)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Minute)
	if c.Timeout < 0 {
		c.Timeout = math.MaxInt64
	}
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 20)
	if c.Backoff == nil {
		c.Backoff = Exponential(time.Second, 10*time.Minute)
	}
	c.DrainTimeout = max(cmp.Or(c.DrainTimeout, 20*time.Second), 0)
	c.CancelTimeout = cmp.Or(c.CancelTimeout, 5*time.Second)
	c.UnknownDelay = cmp.Or(c.UnknownDelay, 30*time.Second)
	if c.Logger == nil {
		c.Logger = stderrLogger()
	}
	return c
}

func (c Config) validate(h duly.Handler, sources []Source) error {
	switch {
	case c.Concurrency < 1 || c.Concurrency > 10_000:
		return fmt.Errorf("%w: Concurrency %d is not between 1 and 10000", ErrInvalid, c.Concurrency)
	case c.Lease < 100*time.Millisecond || c.Lease > 24*time.Hour:
		return fmt.Errorf("%w: Lease %v is not between 100ms and 24h", ErrInvalid, c.Lease)
	case c.MaxAttempts < 1:
		return fmt.Errorf("%w: MaxAttempts %d is under 1", ErrInvalid, c.MaxAttempts)
	case c.CancelTimeout < 0:
		return fmt.Errorf("%w: CancelTimeout %v is negative", ErrInvalid, c.CancelTimeout)
	case c.UnknownDelay < 0:
		return fmt.Errorf("%w: UnknownDelay %v is negative", ErrInvalid, c.UnknownDelay)
	case len(sources) == 0:
		return fmt.Errorf("%w: no source", ErrInvalid)
	}
	names := make(map[string]bool)
	for _, s := range sources {
		if s == nil {
			return fmt.Errorf("%w: nil source", ErrInvalid)
		}
		if names[s.Name()] {
			return fmt.Errorf("%w: two sources named %q", ErrInvalid, s.Name())
		}
		names[s.Name()] = true
	}
	if c.Strict && len(c.Weights) > 0 {
		return fmt.Errorf("%w: Weights of sources that are Strict", ErrInvalid)
	}
	for kind, most := range c.KindLimits {
		if most < 1 {
			return fmt.Errorf("%w: KindLimits[%q] = %d is under 1", ErrInvalid, kind, most)
		}
		if mux, ok := h.(interface{ Kinds() []string }); ok && !slices.Contains(mux.Kinds(), kind) {
			return fmt.Errorf("%w: KindLimits for %q, for which there is no handler", ErrInvalid, kind)
		}
	}
	for name, weight := range c.Weights {
		if !names[name] {
			return fmt.Errorf("%w: Weights for %q, which is no source", ErrInvalid, name)
		}
		if weight < 1 || weight > 1000 {
			return fmt.Errorf("%w: Weights[%q] = %d is not between 1 and 1000", ErrInvalid, name, weight)
		}
	}
	return nil
}

func stderrLogger() *zap.Logger {
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(zap.WarnLevel)
	cfg.Encoding = "console"
	cfg.EncoderConfig = zap.NewDevelopmentEncoderConfig()
	logger, err := cfg.Build(zap.WithCaller(false), zap.AddStacktrace(zap.DPanicLevel))
	if err != nil {
		return zap.NewNop() // stderr cannot be opened: nowhere to say so
	}
	return logger
}
