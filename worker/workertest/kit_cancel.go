package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly"
)

var cancelCases = []testCase{
	{"a cancelled run ends its task however it is settled", cancelEndsTask},
	{"an ack of a cancelled run stands", cancelledAck},
	{"extending tells which are cancelled and keeps their leases", extendCancelled},
	{"a cancelled run whose lease ran out is gone", cancelledCrash},
	{"a cancellation hits no later run", cancelHitsNoLater},
	{"a cancelled run is told", cancelTold},
	{"a watcher is told by fence which run is cancelled", cancelToldByFence},
}

// cancel cancels the run of an ID.
func (r *rig) cancel(id string) {
	r.Helper()
	if r.CancelRunning == nil {
		r.Skip("skipped: the Harness has no CancelRunning")
	}
	if err := r.CancelRunning(r.Context(), id); err != nil {
		r.Fatalf("CancelRunning: %v", err)
	}
}

// cancelled extends a delivery, which must be held, and returns whether it is
// reported as cancelled.
func (r *rig) cancelled(d *duly.Delivery) bool {
	r.Helper()
	lost, cancelled, err := r.Source.Extend(r.Context(), []*duly.Delivery{d}, long)
	if err != nil {
		r.Fatalf("Extend: %v", err)
	}
	if len(lost) > 0 {
		r.Fatalf("Extend reports %q as lost, which is held", idsOf(lost))
	}
	return len(cancelled) > 0
}

func cancelEndsTask(r *rig) {
	for _, action := range everyAction {
		id := string(action)
		r.add(0, id)
		d := r.take(id, long)
		r.cancel(id)
		r.cancel(id) // which is harmless
		r.want(Leased, id)
		r.idle()
		how := duly.Settlement{Delivery: d, Action: action, At: d.Popped.Add(short), Err: errors.New("interrupted")}
		if lost := r.settleAll(how); len(lost) > 0 {
			r.Errorf("Settle (%s) of a cancelled delivery reports it as lost", action)
		}
		r.want(Missing, id)
		r.settleLost(d, action)
		r.idle()
	}
}

func cancelledAck(r *rig) {
	r.add(0, "a", "b", "c")
	ds, _ := r.pop(3, long)
	if len(ds) != 3 {
		r.Fatalf("popped %q, want 3 tasks", idsOf(ds))
	}
	r.cancel(ds[0].ID)
	r.cancel(ds[2].ID)
	lost := r.settleAll(
		duly.Settlement{Delivery: ds[0], Action: duly.Acked},
		duly.Settlement{Delivery: ds[1], Action: duly.Retried},
		duly.Settlement{Delivery: ds[2], Action: duly.Repeated, At: ds[2].Popped.Add(short)}, // done, and the last
	)
	if len(lost) > 0 {
		r.Errorf("Settle reports %q as lost, which are held", idsOf(lost))
	}
	r.want(Missing, ds[0].ID, ds[2].ID)
	r.want(Due, ds[1].ID) // which nobody cancelled
}

func extendCancelled(r *rig) {
	r.add(0, "a", "b", "c")
	ds, _ := r.pop(3, short)
	if len(ds) != 3 {
		r.Fatalf("popped %q, want 3 tasks", idsOf(ds))
	}
	r.cancel(ds[1].ID)
	r.settle(ds[0], duly.Acked, 0)
	for range 2 {
		lost, cancelled, err := r.Source.Extend(r.Context(), ds, long)
		if err != nil {
			r.Fatalf("Extend: %v", err)
		}
		if !slices.Equal(lost, ds[:1]) || !slices.Equal(cancelled, ds[1:2]) {
			r.Errorf("Extend reports %q as lost and %q as cancelled, want %q and %q, these very deliveries",
				idsOf(lost), idsOf(cancelled), idsOf(ds[:1]), idsOf(ds[1:2]))
		}
	}
	r.Sleep(2 * short)
	r.idle() // its handler runs: the task is nobody else's
	r.want(Leased, ds[1].ID, ds[2].ID)
}

func cancelledCrash(r *rig) {
	r.add(0, "a")
	d := r.take("a", short)
	r.cancel("a")
	r.Sleep(short + time.Millisecond)
	r.idle()
	r.want(Missing, "a")
	r.settleLost(d, duly.Retried)
}

func cancelHitsNoLater(r *rig) {
	for _, action := range everyAction {
		id := string(action)
		r.add(0, id)
		d := r.take(id, long)
		r.cancel(id)
		r.settle(d, action, 0)
		r.add(0, id)
		d = r.take(id, long)
		if r.cancelled(d) {
			r.Errorf("a run that began after the cancelled one was settled (%s) is reported as cancelled", action)
		}
		r.settle(d, duly.Retried, 0)
		r.want(Due, id)
		r.settle(r.take(id, long), duly.Acked, 0)
	}
}

// A told is what a watcher is told of a cancelled run.
type told struct {
	id    string
	fence uint64
}

// watchCancelled watches until the end of the test or stop.
func (r *rig) watchCancelled() (cancels <-chan told, stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	heard, begun, ended := make(chan told, 100), make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		r.Source.Watch(ctx, func(time.Duration) {
			select {
			case begun <- struct{}{}:
			default:
			}
		}, func(id string, fence uint64) { heard <- told{id, fence} })
	}()
	select {
	case <-begun:
	case <-time.After(patience):
		cancel()
		r.Fatal("Watch does not begin")
	}
	return heard, func() {
		cancel()
		<-ended
	}
}

// awaitTold waits a while for what is told of a delivery, which may be lost.
func (r *rig) awaitTold(cancels <-chan told, d *duly.Delivery) bool {
	r.Helper()
	for {
		select {
		case got := <-cancels:
			if got.id == d.ID && got.fence >= d.Fence {
				return true
			}
			r.Errorf("a watcher is told of %q up to fence %d, want %q, fence %d", got.id, got.fence, d.ID, d.Fence)
		case <-time.After(patience / 100):
			return false
		}
	}
}

// cancelTold cancels runs until three of them were told, as hinted does.
func cancelTold(r *rig) {
	cancels, stop := r.watchCancelled()
	defer stop()
	heard := 0
	for i := 0; i < 20 && heard < 3; i++ {
		id := fmt.Sprint("task: ", i)
		r.add(0, id)
		d := r.take(id, long)
		r.cancel(id)
		if r.awaitTold(cancels, d) {
			heard++
		}
	}
	if heard < 3 {
		r.Errorf("of 20 cancelled runs %d were told", heard)
	}
}

func cancelToldByFence(r *rig) {
	cancels, stop := r.watchCancelled()
	defer stop()
	r.add(0, "a")
	var last []told
	for range 5 {
		d := r.take("a", long)
		r.cancel("a")
		select {
		case got := <-cancels:
			last = append(last, got)
		case <-time.After(patience / 100): // it was lost
		}
		r.settle(d, duly.Retried, 0)
		r.add(0, "a")
		next := r.take("a", long)
		for _, got := range last {
			if got.fence >= next.Fence {
				r.Errorf("what was told of a run up to fence %d holds for the next one, fence %d", got.fence, next.Fence)
			}
		}
		r.settle(next, duly.Released, 0)
	}
}
