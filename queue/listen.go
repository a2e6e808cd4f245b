package queue

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// listenForEnds tells which tasks have ended that somebody waits for, until ctx
// ends or the client is closed. A subscription that breaks is made again.
func (q *Queue) listenForEnds(ctx context.Context, heard func(ids string), connected func(bool)) {
	for pause := time.Duration(0); ctx.Err() == nil; pause = min(max(2*pause, 50*time.Millisecond), 2*time.Second) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		began := time.Now()
		err := q.hear(ctx, heard, connected)
		connected(false)
		if errors.Is(err, redis.ErrClosed) {
			return
		}
		if time.Since(began) > time.Second {
			pause = 0
		}
	}
}

// confirmWithin is how long a subscription may take to be confirmed: where go-redis
// connects anew while it subscribes, the new connection does not.
const confirmWithin = time.Second

// hear hears one subscription, until it breaks.
func (q *Queue) hear(ctx context.Context, heard func(ids string), connected func(bool)) (err error) {
	defer func() {
		if cause, ok := recover().(error); ok { // so go-redis says that a Ring is closed
			err = cause
		}
	}()
	sub := q.rdb.Subscribe(ctx, q.keys.ended)
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // receiving ignores ctx
	defer func() {
		if stop() {
			_ = sub.Close()
		}
	}()
	patience := confirmWithin
	for asked := false; ; {
		got, err := sub.ReceiveTimeout(ctx, patience)
		var netErr net.Error
		switch silent := errors.As(err, &netErr) && netErr.Timeout(); {
		case err == nil:
			asked = false
		case silent && patience != confirmWithin && !asked && sub.Ping(ctx) == nil:
			asked = true // a connection that is dead is silent too
			continue
		default:
			return err
		}
		switch got := got.(type) {
		case *redis.Message:
			heard(got.Payload)
		case *redis.Subscription:
			patience = lookEvery
			connected(true)
		}
	}
}
