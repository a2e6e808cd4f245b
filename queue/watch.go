package queue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch calls hint whenever a pop may bring something sooner than the last one
// said, until ctx ends. It is called after every connect and when the connection
// breaks, since hints may have been missed. A hint promises nothing, and one may
// be lost: pop every few seconds all the same.
func (q *Queue) Watch(ctx context.Context, hint func()) {
	for ctx.Err() == nil {
		q.listen(ctx, hint)
		hint()
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// listen calls hint for every message of one subscription, until it breaks.
func (q *Queue) listen(ctx context.Context, hint func()) {
	sub := q.rdb.Subscribe(ctx, q.keys.wake)
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // Receive ignores ctx
	defer func() {
		if stop() {
			_ = sub.Close()
		}
	}()
	for {
		got, err := sub.Receive(ctx)
		if err != nil {
			return
		}
		if _, pong := got.(*redis.Pong); !pong {
			hint()
		}
	}
}
