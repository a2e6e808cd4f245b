package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// scatter spreads numbers over the due times, so that no order of IDs happens to
// be the order in which tasks are due. It is prime, and no count of tasks here
// is a multiple of it.
const scatter = 7919

// A plan is tasks that fall due one after the other.
type plan struct {
	tasks []task      // in due order
	due   []time.Time // by task number
	rank  []int       // by task number: where it stands in tasks
}

// newPlan spreads n tasks evenly over a time. Due times are whole milliseconds,
// so that those of one millisecond can be handed over in one batch.
func newPlan(n int, start time.Time, over time.Duration) plan {
	p := plan{make([]task, n), make([]time.Time, n), make([]int, n)}
	for i := range n {
		number := i * scatter % n
		due := start.Add((over * time.Duration(i) / time.Duration(n)).Truncate(time.Millisecond))
		p.tasks[i] = task{id: taskID('t', number), payload: payload, due: due}
		p.due[number], p.rank[number] = due, i
	}
	return p
}

// latenessSuite measures how long after its due time a handler begins.
func latenessSuite(ctx context.Context, r *rig) error {
	for _, rate := range r.scale.rates {
		err := r.alternate(ctx, "lateness", r.rounds, nil, func(ctx context.Context, t *trial) error {
			if t.enough("asynq", "river", "river-tuned") {
				return nil
			}
			n := int(float64(rate) * t.scale.lateness.Seconds())
			p, count, err := t.runPlan(ctx, n, t.scale.lateness)
			if err != nil {
				return err
			}
			late := make([]float64, n) // ms
			early := 0
			for i, began := range count.began {
				d := began.Sub(p.due[i])
				if late[i] = d.Seconds() * 1000; d < 0 {
					early++
				}
			}
			slices.Sort(late)
			at := number(float64(rate)) + " due/s, "
			t.record(at+"early", "tasks", float64(early))
			t.record(at+"p50", "ms", quantile(late, 0.5))
			t.record(at+"p99", "ms", quantile(late, 0.99))
			t.record(at+"max", "ms", late[n-1])
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// quantile is the nearest rank in sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

// How much time there is between the start of loading and the first due time.
const (
	leadBase    = 1500 * time.Millisecond
	leadSingly  = time.Second / 8_000  // a task
	leadInBatch = time.Second / 20_000 // a task
)

// runPlan enqueues n tasks ahead of the whole second in which the first is due,
// and runs them with one worker that has been there since before.
func (t *trial) runPlan(ctx context.Context, n int, over time.Duration) (p plan, count *tally, err error) {
	s, err := t.open(ctx)
	if err != nil {
		return p, nil, err
	}
	defer closing(s, &err)
	lead := leadBase + time.Duration(n)*leadInBatch
	if !s.batches() {
		lead = leadBase + time.Duration(n)*leadSingly
	}
	start := time.Now().Add(lead).Truncate(time.Second).Add(time.Second)
	p = newPlan(n, start, over)
	if err := load(ctx, s, p.tasks); err != nil {
		return p, nil, err
	}
	count = newTally(n, 0)
	stop, err := s.work(ctx, fullSpeed.concurrency, count.handle)
	if err != nil {
		return p, nil, err
	}
	if left := time.Until(start); left < leadBase/3 {
		err = fmt.Errorf("enqueuing took so long that only %v are left before the first is due", left)
	}
	if err == nil {
		err = count.wait(ctx, time.Until(start)+over+time.Minute)
	}
	if err == nil {
		err = settled(ctx, s, 0)
	}
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	return p, count, err
}
