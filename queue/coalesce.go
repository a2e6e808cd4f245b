package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A coalescer sends the tasks of concurrent Enqueue calls together. A call that
// finds none on its way leaves at once; those that come meanwhile leave together
// when it is back. The wait of one caller is nobody else's: it may end at any
// time.
type coalescer struct {
	send func(ctx context.Context, parcels []*parcel) error

	mu      sync.Mutex // guards what follows and the trips
	waiting []*trip
	busy    bool // a trip is on its way
}

// A trip is one batch of several callers, there and back.
type trip struct {
	batch
	ctx     context.Context //nolint:containedctx // the first caller's, without its end
	callers int             // that wait
	left    bool
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
		t = &trip{ctx: context.WithoutCancel(ctx), back: make(chan struct{})}
		c.waiting = append(c.waiting, t)
	}
	t.add(p)
	t.callers++
	if !c.busy {
		c.busy = true
		go c.run()
	}
	return t
}

// abandon ends the wait of one caller. A trip that nobody waits for any more,
// since Redis does not answer, is in nobody's way.
func (c *coalescer) abandon(ctx context.Context, t *trip, p *parcel) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-t.back:
		return p.err
	default:
	}
	t.callers--
	if !t.left {
		p.abandoned = true
		return ctx.Err()
	}
	if t.callers == 0 {
		go c.run()
	}
	return fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
}

// run makes the trips that wait, until there are none, or until it has been
// replaced for the trip that it is on.
func (c *coalescer) run() {
	for {
		t, parcels := c.next()
		if t == nil {
			return
		}
		c.deliver(t.ctx, parcels)
		if !c.arrive(t) {
			return
		}
	}
}

// arrive wakes the callers of a trip, if any still wait.
func (c *coalescer) arrive(t *trip) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(t.back)
	return t.callers > 0
}

// next takes the first trip that anyone waits for.
func (c *coalescer) next() (*trip, []*parcel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.waiting) > 0 {
		t := c.waiting[0]
		c.waiting[0], c.waiting = nil, c.waiting[1:]
		if t.callers == 0 {
			continue
		}
		t.left = true
		parcels := make([]*parcel, 0, len(t.parcels))
		for _, p := range t.parcels {
			if !p.abandoned {
				parcels = append(parcels, p)
			}
		}
		return t, parcels
	}
	c.waiting, c.busy = nil, false
	return nil, nil
}

// deliver sends a batch. What Redis refuses to many it may grant to some, so
// each is then sent alone.
func (c *coalescer) deliver(ctx context.Context, parcels []*parcel) {
	err := c.send(ctx, parcels)
	if len(parcels) == 1 || !errors.Is(err, ErrFull) && !errors.Is(err, ErrWrongType) {
		return
	}
	for i := range parcels {
		_ = c.send(ctx, parcels[i:i+1]) // the parcel has the error
	}
}
