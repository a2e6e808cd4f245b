package queue

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch calls hint whenever a pop may bring something sooner than the last one
// said, with how long it will be until then, until ctx ends. It is called with
// zero after every connect and when the connection breaks, since hints may have
// been missed. A hint promises nothing, and one may be lost: pop every few
// seconds all the same.
//
// It calls cancel when a run is cancelled: that of any delivery of the ID whose
// fence is no higher. This may be lost as well; [Queue.Extend] tells it again.
// The two are called one at a time, and what takes long in them holds up the rest.
func (q *Queue) Watch(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
	for ctx.Err() == nil {
		q.listen(ctx, hint, cancel)
		hint(0)
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// listen calls hint or cancel for every message of one subscription, until it
// breaks.
func (q *Queue) listen(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
	sub := q.rdb.Subscribe(ctx, q.keys.wake)
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // Receive ignores ctx
	defer func() {
		if stop() {
			_ = sub.Close()
		}
	}()
	for patience := confirmWithin; ; patience = 0 { // then for ever
		got, err := sub.ReceiveTimeout(ctx, patience)
		if err != nil {
			return
		}
		switch got := got.(type) {
		case *redis.Message:
			if id, fence, ok := cancelOf(got.Payload); ok {
				cancel(id, fence)
				continue
			}
			us, _ := strconv.ParseInt(got.Payload, 10, 64) // other words mean now
			hint(min(max(time.Duration(us), 0), maxWait/time.Microsecond) * time.Microsecond)
		case *redis.Subscription:
			hint(0)
		}
	}
}

// cancelOf reads the message "cancel <fence> <id>", which no hint looks like.
func cancelOf(payload string) (id string, fence uint64, ok bool) {
	rest, ok := strings.CutPrefix(payload, "cancel ")
	if !ok {
		return "", 0, false
	}
	digits, id, _ := strings.Cut(rest, " ")
	fence, err := strconv.ParseUint(digits, 10, 64)
	return id, fence, err == nil
}
