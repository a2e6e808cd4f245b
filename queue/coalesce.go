package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// patience is how long those that wait let a trip hold them up: it may be on a
// connection that is dead.
const patience = 100 * time.Millisecond

// worth is how many tasks are worth a trip while another is under way. Then Redis
// has something to do while the callers of that one are woken and come again.
const worth = 64

// A coalescer sends the tasks of concurrent Enqueue calls together. A call that
// finds none on its way leaves at once; those that come meanwhile leave together
// when it is back, or when they are worth a second trip. Each caller may give up at
// any time, to nobody else's harm.
type coalescer struct {
	send func(ctx context.Context, parcels []*parcel) error

	mu      sync.Mutex // guards what follows and the trips
	waiting []*trip
	out     []*trip // that hold up those that wait
}

// A trip is one batch of several callers, there and back.
type trip struct {
	batch
	ctx     context.Context //nolint:containedctx // of the call; ends when nobody waits for it
	cancel  context.CancelFunc
	callers int // that wait
	left    bool
	timed   bool          // its patience runs
	back    chan struct{} // closed when every parcel has its answer
}

// enqueue sends a parcel and waits for its answer.
func (c *coalescer) enqueue(ctx context.Context, p *parcel) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := c.board(ctx, p)
	select {
	case <-t.back:
		return p.err
	case <-ctx.Done():
		return c.abandon(ctx, t, p)
	}
}

// board puts a parcel on the last trip that waits, if it fits.
func (c *coalescer) board(ctx context.Context, p *parcel) *trip {
	c.mu.Lock()
	defer c.mu.Unlock()
	var t *trip
	if n := len(c.waiting); n > 0 && c.waiting[n-1].takes(p) {
		t = c.waiting[n-1]
	} else {
		t = &trip{batch: newBatch(1), back: make(chan struct{})}
		t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
		c.waiting = append(c.waiting, t)
	}
	t.add(p)
	t.callers++
	c.depart()
	return t
}

// abandon ends the wait of one caller. The last one ends the call.
func (c *coalescer) abandon(ctx context.Context, t *trip, p *parcel) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-t.back:
		return p.err
	default:
	}
	if t.callers--; t.callers == 0 {
		t.cancel()
	}
	if t.left {
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
	p.abandoned, p.record = true, ""
	return ctx.Err()
}

// room says whether a trip may leave now: one that is full, as it is if another is
// behind it, is worth it whatever its size. mu is held.
func (c *coalescer) room(t *trip) bool {
	return len(c.out) == 0 || len(c.out) == 1 && (t.callers >= worth || len(c.waiting) > 1)
}

// depart lets trips leave that anyone waits for, as far as there is room. mu is
// held.
func (c *coalescer) depart() {
	for len(c.waiting) > 0 && c.room(c.waiting[0]) {
		t := c.waiting[0]
		c.waiting[0], c.waiting = nil, c.waiting[1:]
		if t.callers > 0 {
			c.out, t.left = append(c.out, t), true
			go c.travel(t)
		}
	}
	if len(c.waiting) == 0 {
		return
	}
	for _, t := range c.out {
		if !t.timed {
			t.timed = true
			time.AfterFunc(patience, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.pass(t)
			})
		}
	}
}

// pass lets the next trip leave though one may not be back. mu is held.
func (c *coalescer) pass(t *trip) {
	if i := slices.Index(c.out, t); i >= 0 {
		c.out = slices.Delete(c.out, i, i+1)
		c.depart()
	}
}

// travel makes a trip and wakes its callers.
func (c *coalescer) travel(t *trip) {
	parcels := make([]*parcel, 0, len(t.parcels))
	for _, p := range t.parcels { // to which nothing is added once it has left
		if !p.abandoned {
			parcels = append(parcels, p)
		}
	}
	c.deliver(t.ctx, parcels)
	c.mu.Lock()
	defer c.mu.Unlock()
	t.cancel()
	close(t.back)
	c.pass(t)
}

// deliver sends a batch. What Redis refuses to many it may grant to some, so
// each is then sent alone, as long as Redis answers and anyone waits.
func (c *coalescer) deliver(ctx context.Context, parcels []*parcel) {
	if err := c.send(ctx, parcels); len(parcels) == 1 || !refused(err) {
		return
	}
	for i := range parcels {
		if err := c.send(ctx, parcels[i:i+1]); err != nil && !refused(err) {
			return // the rest has been refused with the batch
		}
	}
}

func refused(err error) bool { return errors.Is(err, ErrFull) || errors.Is(err, ErrWrongType) }
