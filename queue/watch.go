package queue

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch calls hint whenever a pop may bring something sooner than the last one
// said, with how long it will be until then, until ctx ends. It is called with
// zero after every connect and when the connection breaks, since hints may have
// been missed. A hint promises nothing, and one may be lost: pop every few
// seconds all the same.
func (q *Queue) Watch(ctx context.Context, hint func(in time.Duration)) {
	for ctx.Err() == nil {
		q.listen(ctx, hint)
		hint(0)
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// listen calls hint for every message of one subscription, until it breaks.
func (q *Queue) listen(ctx context.Context, hint func(in time.Duration)) {
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
		switch got := got.(type) {
		case *redis.Message:
			us, _ := strconv.ParseInt(got.Payload, 10, 64) // other words mean now
			hint(min(max(time.Duration(us), 0), maxWait/time.Microsecond) * time.Microsecond)
		case *redis.Subscription:
			hint(0)
		}
	}
}
