package main

import (
	"context"
	"time"
)

// outOfPlace is how far a task may begin from its place in due order before it
// counts: a batch or two and the goroutines of a pool mix within that.
const outOfPlace = 1000

// burstSuite has many tasks fall due in the same second, one worker, and looks
// at how fast and in which order they run. A task that is lost is an error, as
// everywhere.
func burstSuite(ctx context.Context, r *rig) error {
	out := leaveOut{"river": "it fetches 100 tasks every 100 ms by default, so this would take minutes"}
	return r.alternate(ctx, "burst", r.rounds, out, func(ctx context.Context, t *trial) error {
		if t.enough("asynq", "asynq-tuned", "river-tuned") {
			return nil
		}
		n := t.scale.burst
		p, count, err := t.runPlan(ctx, n, time.Second)
		if err != nil {
			return err
		}
		end := count.ended.Load()
		displaced, furthest := 0, 0
		for number, place := range count.place {
			off := int(place) - 1 - p.rank[number]
			off = max(off, -off)
			furthest = max(furthest, off)
			if off > outOfPlace {
				displaced++
			}
		}
		t.record("from the first due time to the last end", "tasks/s", float64(n)/end.Sub(p.tasks[0].due).Seconds())
		t.record("from the last due time to the last end", "ms", end.Sub(p.tasks[n-1].due).Seconds()*1000)
		t.record("began more than 1,000 places off", "tasks", float64(displaced))
		t.record("furthest out of place", "places", float64(furthest))
		t.record("ran more than once", "tasks", float64(count.again.Load()))
		t.record("lost", "tasks", float64(count.left.Load()))
		return nil
	})
}
