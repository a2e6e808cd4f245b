package queue_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A mark goes with its run, however that ends, and hits no later run of the ID.
func TestACancellationHitsNoLaterRun(t *testing.T) {
	t.Parallel()
	ends := append([]duly.Action{"crash"}, everyAction...)
	onEach(t, func(t *testing.T, main *rig) {
		for _, end := range ends {
			for _, replaced := range []bool{false, true} {
				t.Run(fmt.Sprint(end, " replaced ", replaced), func(t *testing.T) {
					r := main.another(t, queue.Config{})
					d := r.leased(t, "x")["x"]
					r.cancelRunning(t, queue.Leased)
					if replaced {
						r.enqueue(t, "x", queue.OnConflict(queue.Replace))
					}
					var again []*duly.Delivery
					if end == "crash" {
						r.lapse(t, d)
						again = r.pop(t, 1)
					} else {
						r.settle(t, end, d)
					}
					equal(t, "marks", len(r.snapshot(t).cancel), 0)
					if !replaced {
						equal(t, "popped", len(again), 0)
						r.enqueue(t, "x")
					}
					if len(again) == 0 {
						again = r.pop(t, 1)
					}
					_, cancelled, err := r.q.Extend(t.Context(), again, time.Hour)
					must(t, err)
					equal(t, "cancelled", ids(cancelled), []string{})
					r.settle(t, duly.Retried, again...)
					equal(t, "failures", r.get(t, "x").Failures, 1)
				})
			}
		}
	})
}

// A worker of a version that knows no marks leaves them behind.
func TestAMarkThatWasLeftBehindHitsNoLaterRun(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		d := r.leased(t, "x")["x"]
		r.cancelRunning(t, queue.Leased)
		mark := r.snapshot(t).cancel["x"]
		r.settle(t, duly.Acked, d)
		for _, action := range []duly.Action{duly.Retried, duly.Released, "crash"} {
			must(t, r.HSet(t.Context(), r.key("cancel"), "x", mark).Err())
			r.enqueue(t, "x")
			d := r.popOne(t, "x")
			_, cancelled, err := r.q.Extend(t.Context(), []*duly.Delivery{d}, time.Hour)
			must(t, err)
			equal(t, "cancelled", ids(cancelled), []string{})
			if action == "crash" {
				r.lapse(t, d)
				r.popOne(t, "x")
			} else {
				r.settle(t, action, d)
				r.popOne(t, "x")
			}
			r.cancelRunning(t, queue.Leased) // which is a mark that counts
			for _, d := range r.leasedNow(t) {
				r.settle(t, duly.Retried, d)
			}
			r.wantState(t, queue.Missing, "x")
		}
	})
}

// leasedNow returns the deliveries that hold a lease, as far as their settling goes.
func (r *rig) leasedNow(t *testing.T) []*duly.Delivery {
	t.Helper()
	var ds []*duly.Delivery
	for member := range r.snapshot(t).leased {
		parts := strings.SplitN(member, ":", 3)
		fence, err := strconv.ParseUint(parts[0], 10, 64)
		must(t, err)
		due, err := strconv.ParseInt(parts[1], 10, 64)
		must(t, err)
		ds = append(ds, &duly.Delivery{Task: task(parts[2]), Fence: fence, Due: time.UnixMicro(due)})
	}
	return ds
}
