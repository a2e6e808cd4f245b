package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dulyhq/duly"
)

// A handlerContext is the context of one call of a handler: it ends with its
// base, at a deadline, or when it is ended. What the standard library needs for
// that, ten allocations and a timer, is made when it is first asked for, so that
// a handler which does not look pays nothing. Its methods may be called
// concurrently.
type handlerContext struct {
	base     context.Context            //nolint:containedctx // it is a context
	stopped  *atomic.Pointer[time.Time] // when the base was ended
	deadline time.Time

	mu     sync.Mutex      // guards what follows
	made   context.Context //nolint:containedctx // as above; nil until it is asked for
	cancel context.CancelCauseFunc
	stop   context.CancelFunc // stops the timer
	over   bool
	cause  error // why it is over, or nil
}

// String keeps what prints a context from reading its fields.
func (c *handlerContext) String() string { return "context of a duly handler" }

// Deadline is when the handler's time is up.
func (c *handlerContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done and Err are those of the context made.
func (c *handlerContext) Done() <-chan struct{} { return c.get().Done() }

func (c *handlerContext) Err() error { return c.get().Err() }

// Value asks the context made, by which [context.Cause] and derived contexts
// find that as well.
func (c *handlerContext) Value(key any) any { return c.get().Value(key) }

func (c *handlerContext) get() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made != nil {
		return c.made
	}
	base := c.base
	if at := c.stopped.Load(); c.over || at != nil && c.deadline.Before(*at) {
		base = context.WithoutCancel(base) // its end did not come first
	}
	c.made, c.cancel = context.WithCancelCause(base)
	if c.over {
		c.cancel(c.cause)
	} else {
		c.made, c.stop = context.WithDeadlineCause(c.made, c.deadline, duly.ErrTimeout)
	}
	return c.made
}

// end ends the context, unless it is over: nil is the plain end of the call.
func (c *handlerContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over, c.cause = true, cause
	if c.made != nil {
		c.cancel(cause)
		c.stop()
	}
}
