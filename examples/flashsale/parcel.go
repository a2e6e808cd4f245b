package main

import (
	"context"
	"errors"
	"time"

	"github.com/dulyhq/duly"
)

// A parcel is what comes of shipping an order: the result of the ship task.
type parcel struct {
	Tracking string `json:"tracking"`
}

// errNoParcel: the parcel has not left.
var errNoParcel = errors.New("the parcel has not left yet")

// How long a buyer who asks for a parcel is kept waiting, and how soon the shop
// looks again for a task that the outbox is about to enqueue.
const (
	parcelWait = 5 * time.Second
	taskPoll   = 20 * time.Millisecond
)

// parcel waits until the parcel of a paid order has left. After parcelWait the
// error is errNoParcel; that of an order that is not paid is a *stateError.
//
// The queue tells it the moment it is so, and nobody asks the database over and
// over. But a queue knows a task no sooner than it is enqueued, and forgets it
// when it has been done for a while: then the database has the answer.
func (s *shop) parcel(ctx context.Context, id string) (parcel, error) {
	o, err := s.store.order(ctx, id)
	if err != nil {
		return parcel{}, err
	}
	if o.State == reserved || o.State == cancelled {
		return parcel{}, &stateError{o.State}
	}
	ctx, cancel := context.WithTimeout(ctx, parcelWait)
	defer cancel()
	for {
		p, err := s.await(ctx, id)
		if errors.Is(err, duly.ErrNotFound) {
			p, err = s.store.parcel(ctx, id)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return parcel{}, errNoParcel
		case !errors.Is(err, errNoParcel):
			return p, err
		}
		sleep(ctx, taskPoll)
	}
}

// await waits for the ship task of an order.
func (s *shop) await(ctx context.Context, id string) (p parcel, err error) {
	ended, err := s.queue.Wait(ctx, shipID(id))
	if err != nil {
		return p, err
	}
	return p, ended.Decode(&p)
}
