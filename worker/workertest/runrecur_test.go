package workertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
	"github.com/dulyhq/duly/worker/workertest"
)

// A year in a moment: the report of 02:30 is made on each day, also where the clocks
// change, and the sweep of each hour once an hour.
func TestRunDueRunsAYearOfTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := workertest.NewSource("orders")
		for id, every := range map[string]string{"report": "CRON_TZ=Europe/Berlin 30 2 * * *", "sweep": "@every 1h"} {
			task := task(id)
			task.Every = every
			_, err := src.Recur(t.Context(), task, func(now time.Time) time.Time {
				first, err := worker.NextTick(every, now)
				must(t, err)
				return first
			})
			must(t, err)
		}
		days, sweeps, start := make(map[string]int), 0, src.Now()
		for src.Now().Sub(start) < 366*24*time.Hour { // 2000 is a leap year
			head, err := src.Peek(t.Context(), 1)
			must(t, err)
			src.Advance(head[0].At.Sub(src.Now()))
			runs, err := workertest.RunDue(t.Context(), src, handler(func(context.Context, *duly.Delivery) error { return nil }))
			must(t, err)
			for _, run := range runs {
				switch d := run.Delivery; {
				case run.Action != duly.Repeated || !d.Popped.Equal(d.Due):
					t.Fatalf("%s of %v was %s at %v", d.ID, d.Due, run.Action, d.Popped)
				case d.ID == "sweep":
					sweeps++
				default:
					days[d.Due.Format(time.DateOnly)]++
				}
			}
		}
		if len(days) != 366 || sweeps != 366*24 {
			t.Errorf("reports on %d days, %d sweeps", len(days), sweeps)
		}
		for day, n := range days {
			if n != 1 {
				t.Errorf("%d reports on %s", n, day)
			}
		}
	})
}

// Three ticks were missed: one run, and the next tick is in the future, whatever
// the handler does to the clock.
func TestRunDueRunsAMissedTickOnceAndComesToAnEnd(t *testing.T) {
	t.Parallel()
	src, ran := workertest.NewSource("orders"), 0
	recurs, late := task("recurs"), task("late")
	recurs.Every, late.Every, late.Grace = "@every 1h", "@every 1h", time.Minute
	add(t, src, 0, recurs, late)
	src.Advance(3 * time.Hour)
	runs, err := workertest.RunDue(t.Context(), src, handler(func(_ context.Context, d *duly.Delivery) error {
		ran++
		src.Advance(90 * time.Minute)
		if d.ID != "recurs" {
			t.Errorf("%s was run", d.ID)
		}
		return duly.Bury(errors.New("boom"))
	}))
	must(t, err)
	if len(runs) != 3 || ran != 1 || !errors.Is(runs[0].Err, duly.ErrSkipped) || !errors.Is(runs[2].Err, duly.ErrSkipped) {
		t.Errorf("%d ran: %+v", ran, runs) // the late one was late again after the other
	}
	for _, id := range []string{"recurs", "late"} {
		info := workertest.RequireState(t, src, id, workertest.Due)
		if in := info.At.Sub(src.Now()); in <= 0 || in > time.Hour || info.LastError == "" {
			t.Errorf("%s is due in %v, with the error %q", id, in, info.LastError)
		}
	}
}
