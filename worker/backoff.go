package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dulyhq/duly"
)

// A Backoff returns how long after a failed attempt the next one is due, given
// the attempts so far, from 1, and the last one's error. What is negative is
// zero. It is called from many goroutines at once.
type Backoff func(attempt int, err error, task *duly.Task) time.Duration

// Exponential returns a backoff with full jitter: a random time up to base
// doubled with every attempt, up to most. (Marc Brooker, 'Exponential Backoff
// And Jitter', AWS Architecture Blog, 2015.) It panics unless 0 < base ≤ most.
func Exponential(base, most time.Duration) Backoff {
	if base <= 0 || most < base {
		panic("worker: Exponential needs 0 < base ≤ most")
	}
	return func(attempt int, _ error, _ *duly.Task) time.Duration {
		return rand.N(doubled(base, most, attempt-1)) //nolint:gosec // spreads load, secures nothing
	}
}

// doubled is base doubled n times, up to most.
func doubled(base, most time.Duration, n int) time.Duration {
	d := base
	for ; n > 0 && d < most; n-- {
		if d > most/2 {
			return most
		}
		d *= 2
	}
	return d
}

// A pause is the growing wait of a loop whose source does not answer.
type pause struct{ failures int }

// next is at least three quarters of 50 ms doubled with every failure, up to 1.5 s.
func (p *pause) next() time.Duration {
	d := doubled(50*time.Millisecond, 1500*time.Millisecond, p.failures)
	p.failures++
	return d*3/4 + rand.N(d/4) //nolint:gosec // spreads load, secures nothing
}

// wait waits for next, or for the end of ctx.
func (p *pause) wait(ctx context.Context) {
	timer := time.NewTimer(p.next())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *pause) reset() { p.failures = 0 }
