package main

import (
	"context"
	"time"
)

// memorySuite measures what a pending task takes in Redis.
func memorySuite(ctx context.Context, r *rig) error {
	const stored = "PostgreSQL keeps tasks on disk"
	out := leaveOut{"asynq-tuned": "it stores tasks as asynq does", "river": stored, "river-tuned": stored}
	return r.alternate(ctx, "memory", r.rounds, out, func(ctx context.Context, t *trial) (err error) {
		s, err := t.open(ctx)
		if err != nil {
			return err
		}
		defer closing(s, &err)
		before, err := t.redis.memory(ctx)
		if err != nil {
			return err
		}
		n := t.scale.memory
		if err := load(ctx, s, tasksOf('t', 0, n, time.Now().Add(enqueueAhead))); err != nil {
			return err
		}
		if err := settled(ctx, s, n); err != nil {
			return err
		}
		after, err := t.redis.memory(ctx)
		if err != nil {
			return err
		}
		t.record("a pending task", "bytes", (after-before)/float64(n))
		return nil
	})
}
