package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dulyhq/duly"
)

// maxWait is the wait that Pop reports if nothing is known to come.
const maxWait = 24 * time.Hour

// adoptTTL is given to a queue lock that is found without a TTL.
const adoptTTL = 30 * time.Second

// Pop leases up to n tasks that are due, the earliest first, for the given time,
// and reports how long it will be until there may be more: zero if there may be
// now, at most a day. While another holds the queue's lock, or the queue is
// paused, there are none. n is 1 to 500, the lease 10 ms to 24 h.
//
// Each delivery is to be ended by [Queue.Settle] before its lease runs out,
// which is counted from when the server handed it out; else the task is due
// again and its Crashes go up. Count the lease from before the call.
//
// Pops through one Queue value take turns. After an error the next pop brings
// what this one may have leased, if its lease has not run out.
//
// A task whose record does not decode is not delivered but buried.
func (q *Queue) Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	err := errors.Join(checkBatch(n), checkLease(lease))
	if err != nil {
		return nil, 0, fmt.Errorf("queue: pop %q: %w", q.name, err)
	}
	deliveries, wait, err := q.pop(ctx, n, lease)
	if err != nil {
		return nil, 0, fmt.Errorf("queue: pop %q: %w", q.name, err)
	}
	return deliveries, wait, nil
}

func (q *Queue) pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	var now turn
	select {
	case now = <-q.pops:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	token, _ := ctx.Value(tokenKey{}).(string)
	got, err := q.run(ctx, popScript, q.keys.forPop(),
		token, adoptTTL.Milliseconds(), n, lease.Microseconds(), q.cfg.MaxCrashes, now.number, now.fence, q.terms)
	list, _ := got.([]any)
	answer := reply(list)
	if len(answer.list(4)) > 0 {
		now.fence = answer.text(3)
	}
	q.pops <- turn{now.number + 1, now.fence}
	if err != nil {
		return nil, 0, err
	}
	switch answer.text(0) {
	case "ok":
		deliveries, corrupt := q.readPop(answer)
		if len(corrupt) > 0 {
			// If this fails their leases run out, and they come again.
			_, _ = q.Settle(ctx, corrupt)
		}
		return deliveries, popWait(answer.number(2)), nil
	case "locked":
		return nil, max(time.Duration(answer.number(1))*time.Millisecond, 0), nil
	case "paused":
		return nil, maxWait, nil
	}
	return nil, 0, fmt.Errorf("unexpected reply %v", got)
}

// A turn is the right to pop through a Queue value.
type turn struct {
	number int64  // of the pop: one that arrives behind a later one does nothing
	fence  string // of the last deliveries received: newer ones are leased again
}

func popWait(us int64) time.Duration {
	if us < 0 {
		return maxWait
	}
	return time.Duration(min(us, maxWait.Microseconds())) * time.Microsecond
}

// readPop reads the answer {"ok", now, wait, fence, leased members, records,
// failures, crashes}.
func (q *Queue) readPop(answer reply) (deliveries []*duly.Delivery, corrupt []duly.Settlement) {
	popped := microTime(answer.text(1))
	fence, _ := strconv.ParseUint(answer.text(3), 10, 64)
	members, records, failures, crashes := answer.list(4), answer.list(5), answer.list(6), answer.list(7)
	deliveries = make([]*duly.Delivery, 0, len(records))
	for i := range records {
		stored, ok := records.at(i).(string)
		if !ok {
			continue // the script has buried it
		}
		due, id := parts(members.text(i))
		d := &duly.Delivery{Queue: q.name, Due: microTime(due), Popped: popped, Attempt: 1, Fence: fence}
		if failure := failures.text(i); failure != "" {
			failed, _ := decodeFailure(failure)
			d.Attempt = failed + 1
		}
		if crashed := crashes.text(i); crashed != "" {
			d.Crashes, _ = strconv.Atoi(crashed)
		}
		var err error
		if d.Task, err = decodeRecord(id, stored); err != nil {
			corrupt = append(corrupt, duly.Settlement{Delivery: d, Action: duly.Buried, Err: err})
			continue
		}
		deliveries = append(deliveries, d)
	}
	return deliveries, corrupt
}

// parts are the due time and the ID in a leased member: <fence>:<due>:<id>, or of a
// task with a lock key <fence>:<due>@<key>\n<id>.
func parts(member string) (due, id string) {
	_, rest, _ := strings.Cut(member, ":")
	i := strings.IndexAny(rest, ":@")
	if i < 0 {
		return "", member
	}
	due, id = rest[:i], rest[i+1:]
	if rest[i] == '@' {
		_, id, _ = strings.Cut(id, "\n")
	}
	return due, id
}

// members spells the leases of deliveries as they stand in the leased set.
func members(n int, delivery func(i int) *duly.Delivery) []string {
	ends := make([]int, n)
	var all []byte
	for i := range n {
		d := delivery(i)
		all = strconv.AppendUint(all, d.Fence, 10)
		all = append(all, ':')
		all = strconv.AppendInt(all, d.Due.UnixMicro(), 10)
		if d.LockKey != "" {
			all = append(append(append(all, '@'), d.LockKey...), '\n')
		} else {
			all = append(all, ':')
		}
		all = append(all, d.ID...)
		ends[i] = len(all)
	}
	text, from := string(all), 0
	list := make([]string, n)
	for i, end := range ends {
		list[i], from = text[from:end], end
	}
	return list
}
