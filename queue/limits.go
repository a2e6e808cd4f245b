package queue

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Bounds of [Limits].
const (
	maxRunning = 1_000_000
	maxRate    = 1_000_000
	maxFill    = 30 * 24 * time.Hour
)

// Limits bound what a queue hands out, to all its workers together. A field of
// zero is no limit.
type Limits struct {
	// Running is how many tasks are leased at a time: those whose handlers run,
	// those that a worker has fetched ahead, which it gives back if it cannot start
	// them within 30 ms, and those of a worker that died, until their leases end. At
	// most 1,000,000. Default: no limit.
	Running int

	// Rate is how many tasks are handed out in a second. In any time t, by the
	// server's clock, there are never more than Burst + Rate × t. Counted is
	// what is popped, be it run, given back or run again; a pop that is repeated
	// because its reply was lost counts once, but for what it gives back because it
	// asks for less. At most 1,000,000; Burst / Rate is at most 30 days. Default: no
	// limit.
	Rate float64

	// Burst is how many tasks may be handed out at once when there were none for
	// long enough. A worker cannot come more often than a round trip takes: at a
	// high rate it needs a Burst of what is due meanwhile. At most 1,000,000, and
	// none without a Rate. Default: what comes in 10 ms, at least 1.
	Burst int
}

// SetLimits sets the limits of the queue, in place of all that it had, for whoever
// pops from now on: to change one, change what [Queue.Limits] returns. Workers that
// wait are woken. What is leased goes on, also if that is more than there may be now.
// After an error it is not known whether they have been set, unless the error shows
// that Redis refused; to set them again is harmless.
//
// A rate that is changed goes on from where it was: there is no new burst, but
// neither is there a wait of more than one task at the new rate. That is also
// all that a server's clock stepped back can cost.
func (q *Queue) SetLimits(ctx context.Context, l Limits) error {
	l = l.withDefaults()
	err := l.validate()
	if err == nil {
		_, err = q.run(ctx, limitScript, q.keys.forLimit(), l.args()...)
	}
	if err != nil {
		return fmt.Errorf("queue: set limits of %q: %w", q.name, err)
	}
	return nil
}

// Limits returns the limits of the queue, a default Burst as what it is.
func (q *Queue) Limits(ctx context.Context) (Limits, error) {
	s, err := q.Stats(ctx)
	return s.Limits, err
}

func (l Limits) withDefaults() Limits {
	if l.Burst == 0 && l.Rate > 0 && l.Rate <= maxRate {
		l.Burst = max(int(l.Rate/100), 1)
	}
	return l
}

func (l Limits) validate() error {
	switch {
	case l.Running < 0 || l.Running > maxRunning:
		return fmt.Errorf("%w: Running %d is not between 0 and %d", ErrInvalid, l.Running, maxRunning)
	case !(l.Rate >= 0 && l.Rate <= maxRate): // nor is it NaN
		return fmt.Errorf("%w: Rate %v is not between 0 and %d", ErrInvalid, l.Rate, maxRate)
	case l.Burst < 0 || l.Burst > maxRate:
		return fmt.Errorf("%w: Burst %d is not between 0 and %d", ErrInvalid, l.Burst, maxRate)
	case l.Rate == 0 && l.Burst > 0:
		return fmt.Errorf("%w: Burst %d without a Rate", ErrInvalid, l.Burst)
	case l.Rate > 0 && float64(l.Burst)/l.Rate > maxFill.Seconds():
		return fmt.Errorf("%w: Burst %d at Rate %v takes longer than %v", ErrInvalid, l.Burst, l.Rate, maxFill)
	}
	return nil
}

// args are the running tasks, the rate and the burst, empty where there is no
// limit.
func (l Limits) args() []any {
	args := []any{"", "", ""}
	if l.Running > 0 {
		args[0] = l.Running
	}
	if l.Rate > 0 {
		args[1], args[2] = strconv.FormatFloat(l.Rate, 'f', -1, 64), l.Burst
	}
	return args
}

// readLimits reads running, rate and burst, which follow on paused. What is no
// number is no limit, as it is for a pop.
func readLimits(r reply) (l Limits) {
	l.Running, _ = strconv.Atoi(r.text(1))
	if rate, err := strconv.ParseFloat(r.text(2), 64); err == nil && rate > 0 && !math.IsInf(rate, 0) {
		l.Rate = rate
		l.Burst, _ = strconv.Atoi(r.text(3))
	}
	return l
}
