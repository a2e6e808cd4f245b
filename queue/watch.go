package queue

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/dulyhq/duly/lock"
)

// watchSilence is after how long without a hint the connection is tried. Until then, and
// a second longer, hints that a dead one has not brought cost what a poll is late.
const watchSilence = 30 * time.Second

// Watch calls hint whenever a pop may bring something sooner than the last one
// said, with how long it will be until then, until ctx ends or the client is closed.
// It is called with zero after every connect and when the connection breaks, since
// hints may have been missed. A hint promises nothing, and one may be lost: pop every
// few seconds all the same.
//
// It calls cancel when a run is cancelled: that of any delivery of the ID whose
// fence is no higher. This may be lost as well; [Queue.Extend] tells it again.
// The two are called one at a time, and what takes long in them holds up the rest.
func (q *Queue) Watch(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
	lock.Listen(ctx, q.rdb, q.keys.wake, watchSilence, func(payload string) {
		if id, fence, ok := cancelOf(payload); ok {
			cancel(id, fence)
			return
		}
		us, _ := strconv.ParseInt(payload, 10, 64) // other words mean now
		hint(min(max(time.Duration(us), 0), maxWait/time.Microsecond) * time.Microsecond)
	}, func(bool) { hint(0) })
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
