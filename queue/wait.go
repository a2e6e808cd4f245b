package queue

import (
	"context"
	"fmt"

	"github.com/dulyhq/duly"
)

// Wait returns how the task of an ID ends, once it has: at once for one that is
// done and kept, or dead. A task that is retried has not ended. Nor has one that is
// replaced, be it before it runs or while: Wait goes on to the one that takes its
// place, for that is now the task of this ID. Of a recurring task it is the run that
// is next, or goes on, whose end is waited for.
//
// The error matches [duly.ErrNotFound] if there is no such task, or that of ctx. If
// the first look at the task fails, so does Wait, after 5 s if Redis is silent; later
// it outlasts whatever becomes of the connection.
//
// A task need not be kept to be waited for, but one that ends before Wait has looked
// is not found: give it a Retain if it is waited for right after it was enqueued or
// cancelled. Once Wait has looked, its end is kept for a minute for that call, not for
// later ones. Waiters are told of it by a message. Since that may be lost they
// also look after every reconnect, and every 5 s. So Wait returns within
// milliseconds, some seconds late if a message was lost, and with ErrNotFound if
// Redis was out of reach for over a minute meanwhile.
//
// All calls through one Queue value share a subscription and their looks, 200 a
// round trip. Both end soon after the last call.
func (q *Queue) Wait(ctx context.Context, id string) (duly.Ended, error) {
	err := checkText("task ID", id, MaxID)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		w := q.waits.enter(id)
		select {
		case <-w.over:
			if w.err == nil {
				return w.ended, nil
			}
			err = w.err
		case <-ctx.Done():
			q.waits.leave(w)
			err = ctx.Err()
		}
	}
	return duly.Ended{}, fmt.Errorf("queue: wait for %.512q in %q: %w", id, q.name, err)
}

// look looks at the tasks of waiters, and tells those whose task has ended.
func (q *Queue) look(ctx context.Context, batch []*waiter) error {
	args := make([]any, 0, 2*len(batch))
	for _, w := range batch {
		args = append(args, w.id, w.seen)
	}
	got, err := q.run(ctx, waitScript, q.keys.forWait(), args...)
	list, _ := got.([]any)
	if err == nil && len(list) != len(batch) {
		err = fmt.Errorf("unexpected reply %v", got)
	}
	if err != nil {
		return err
	}
	for i, w := range batch {
		switch answer := reply(list).list(i); answer.text(0) {
		case "waiting":
			w.seen = answer.text(1)
		case "missing":
			w.err, w.known = duly.ErrNotFound, true
		default:
			w.ended, w.known = readEnded(w.id, answer.text(0), answer.text(1)), true
		}
	}
	return nil
}

func readEnded(id, word, text string) duly.Ended {
	ended := duly.Ended{ID: id, Action: duly.Action(word)}
	switch ended.Action {
	case duly.Acked:
		if text != "" {
			ended.Result = []byte(text)
		}
	case "crash":
		ended.Action, ended.Err = duly.Buried, duly.ErrCrashed
	case duly.Buried, duly.Dropped, duly.Repeated:
		_, why := decodeFailure(text)
		ended.Err = duly.Why(why)
	}
	return ended
}
