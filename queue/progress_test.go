package queue_test

import (
	"testing"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestTheLatestProgressWinsOutlastsARetryAndGoesWithTheTask(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		report := func(d *duly.Delivery, progress string) {
			t.Helper()
			must(t, r.q.Progress(t.Context(), d, []byte(progress)))
			equal(t, "progress", string(r.get(t, "x").Progress), progress)
		}
		d := r.leased(t, "x")["x"]
		report(d, "1")
		report(d, "2")
		r.settle(t, duly.Retried, d)
		equal(t, "after a retry", string(r.get(t, "x").Progress), "2")
		d = r.popOne(t, "x")
		report(d, "3")
		r.enqueue(t, "x", queue.OnConflict(queue.Replace))
		r.settle(t, duly.Acked, d)
		equal(t, "of the replacement", string(r.get(t, "x").Progress), "")
		d = r.popOne(t, "x")
		report(d, "4 and lost")
		r.enqueue(t, "x", queue.OnConflict(queue.Replace))
		r.lapse(t, d)
		d = r.popOne(t, "x")
		equal(t, "of what replaces a crashed one", string(r.get(t, "x").Progress), "")
		report(d, "4")
		r.settle(t, duly.Buried, d)
		equal(t, "of a dead task", string(r.get(t, "x").Progress), "4")
		_, err := r.q.Purge(t.Context(), 0)
		must(t, err)
		equal(t, "left", len(r.snapshot(t).progress), 0)
		r.enqueue(t, "x")
		d = r.popOne(t, "x")
		report(d, "5")
		r.settle(t, duly.Released, d)
		_, err = r.q.Cancel(t.Context(), "x")
		must(t, err)
		equal(t, "left", len(r.snapshot(t).progress), 0)
	})
}

func TestProgressOfAStaleDeliverySaysThatItsLeaseIsLostAndChangesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		stale := r.leased(t, "x")["x"]
		r.lapse(t, stale)
		d := r.popOne(t, "x")
		must(t, r.q.Progress(t.Context(), d, []byte("1")))
		r.unchanged(t, func() {
			wants(t, r.q.Progress(t.Context(), stale, []byte("2")), duly.ErrLeaseLost)
		})
		r.settle(t, duly.Acked, d)
		r.unchanged(t, func() { wants(t, r.q.Progress(t.Context(), d, []byte("2")), duly.ErrLeaseLost) })
	})
}
