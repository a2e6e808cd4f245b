package queue_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestScriptFlushIsInvisible(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	ctx := t.Context()
	for _, verb := range []func() (any, error){
		func() (any, error) { return r.q.Enqueue(ctx, task("x")) },
		func() (any, error) { return nil, r.q.Pause(ctx) },
		func() (any, error) { return nil, r.q.Resume(ctx) },
		func() (any, error) { return r.q.Reschedule(ctx, "x", queue.In(0)) },
		func() (any, error) { return r.q.Get(ctx, "x") },
		func() (any, error) { return r.q.Peek(ctx, 1) },
		func() (any, error) { return r.q.Stats(ctx) },
		func() (any, error) {
			deliveries, _, err := r.q.Pop(ctx, 1, time.Hour)
			must(t, r.ScriptFlush(ctx).Err())
			must(t, err)
			_, _, err = r.q.Extend(ctx, deliveries, time.Hour)
			must(t, r.ScriptFlush(ctx).Err())
			must(t, err)
			return r.q.Settle(ctx, []duly.Settlement{{Delivery: deliveries[0], Action: duly.Buried}})
		},
		func() (any, error) { return r.q.Revive(ctx, "x") },
		func() (any, error) { return r.q.Purge(ctx, 0) },
		func() (any, error) { return r.q.Cancel(ctx, "x") },
	} {
		must(t, r.ScriptFlush(ctx).Err())
		_, err := verb()
		must(t, err)
	}
	equal(t, "counters", r.stats(t).Counters, map[string]int64{"enqueued": 1, "bury": 1, "revived": 1, "cancelled": 1})
}

func TestADeadlineIsHonouredWhileRedisHangs(t *testing.T) {
	t.Parallel()
	r, server := onOwnRedis(t)
	d := r.leased(t, "x")["x"]
	r.enqueue(t, "y", queue.In(time.Hour))
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	for name, verb := range map[string]func(context.Context) error{
		"enqueue": func(ctx context.Context) error {
			_, err := r.q.Enqueue(ctx, task("z"), queue.In(time.Hour))
			return err
		},
		"pop": func(ctx context.Context) error { _, _, err := r.q.Pop(ctx, 1, time.Hour); return err },
		"extend": func(ctx context.Context) error {
			_, _, err := r.q.Extend(ctx, []*duly.Delivery{d}, time.Hour)
			return err
		},
		"settle": func(ctx context.Context) error {
			_, err := r.q.Settle(ctx, []duly.Settlement{{Delivery: d, Action: duly.Acked}})
			return err
		},
		"cancel": func(ctx context.Context) error { _, err := r.q.Cancel(ctx, "y"); return err },
		"cancel running": func(ctx context.Context) error {
			_, err := r.q.CancelRunning(ctx, "x")
			return err
		},
		"stats": func(ctx context.Context) error { _, err := r.q.Stats(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		err := verb(ctx)
		cancel()
		wants(t, err, queue.ErrUnknownOutcome, context.DeadlineExceeded)
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s returned after %v", name, took)
		}
	}
}

func TestRedisDownIsAnErrorOfWhichTheOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	r, server := onOwnRedis(t)
	server.Kill()
	t.Cleanup(server.Restart) // for the check of the keys
	down := r.client(t, new(link))
	q := newQueue(t, down, r.name, queue.Config{})
	_, err := q.Enqueue(t.Context(), task("x"))
	_, _, popErr := q.Pop(t.Context(), 1, time.Hour)
	for _, err := range []error{err, popErr} {
		if err == nil || errors.Is(err, queue.ErrUnknownOutcome) || errors.Is(err, queue.ErrFull) {
			t.Errorf("got error %v", err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.q.Enqueue(ended, task("x"))
	wants(t, err, context.Canceled)
	if errors.Is(err, queue.ErrUnknownOutcome) {
		t.Errorf("nothing was sent, but: %v", err)
	}
}
