package worker

import (
	"context"
	"sync"
	"time"

	"github.com/dulyhq/duly"
)

// A keeper extends the leases of one source's flights, loses those whose lease has
// ended, and finds those that are cancelled.
type keeper struct {
	source  Source
	lease   time.Duration
	health  *health
	unqueue func(*flight) // of what is cancelled before it began

	mu    sync.Mutex        // guards what follows, but for wake
	held  []*flight         // each at its place
	early map[string]uint64 // what is cancelled while a pop is under way, which may bring it; else nil
	wake  chan struct{}     // something is held again
}

func newKeeper(source Source, lease time.Duration, h *health, unqueue func(*flight)) *keeper {
	return &keeper{source: source, lease: lease, health: h, unqueue: unqueue, wake: make(chan struct{}, 1)}
}

func (k *keeper) add(flights []*flight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.held) == 0 {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	for _, f := range flights {
		f.place = len(k.held)
		k.held = append(k.held, f)
		if fence, ok := k.early[f.ID]; ok && f.Fence <= fence {
			f.cancel()
		}
	}
}

// expect tells that a pop is about to be sent: what is cancelled from now on may be
// what it brings.
func (k *keeper) expect() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.early = make(map[string]uint64)
}

// expected tells that the pop is over, and what it brought added.
func (k *keeper) expected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.early = nil
}

// cancel cancels the flight of an ID, unless its fence is higher: that is a later
// run.
func (k *keeper) cancel(id string, fence uint64) {
	for _, f := range k.cancelled(id, fence) {
		f.cancel()
		k.unqueue(f)
	}
}

// cancelled notes a cancellation, and returns the flights that it is about.
func (k *keeper) cancelled(id string, fence uint64) (flights []*flight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.early != nil {
		k.early[id] = fence
	}
	for _, f := range k.held { // few IDs are cancelled, so they are not kept by ID
		if f.ID == id && f.Fence <= fence {
			flights = append(flights, f)
		}
	}
	return flights
}

func (k *keeper) remove(flights []*flight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range flights {
		k.drop(f)
	}
}

// drop puts the last flight into the place of one that is held. mu is held.
func (k *keeper) drop(f *flight) {
	last := len(k.held) - 1
	if f.place > last || k.held[f.place] != f {
		return
	}
	k.held[f.place], k.held[last].place = k.held[last], f.place
	k.held[last] = nil
	k.held = k.held[:last]
}

// run keeps leases until ctx ends. An extension runs beside the loop, so that
// one that hangs does not keep a lease from ending in time.
func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	extended := make(chan struct{}, 1)
	extending := false
	for {
		due, next := k.look(time.Now(), extending)
		if len(due) > 0 {
			extending = true
			go func() {
				k.extend(ctx, due)
				extended <- struct{}{}
			}()
		}
		var tick <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			tick = timer.C
		}
		select {
		case <-tick:
		case <-k.wake:
		case <-extended:
			extending = false
		case <-ctx.Done():
			if extending {
				<-extended
			}
			return
		}
	}
}

// look loses what has ended, collects what is to be extended, and says when to
// look again; zero if nothing is held. What is to be extended soon goes along
// with what is to be now, so that there are few calls however many flights.
func (k *keeper) look(now time.Time, extending bool) (due []*flight, next time.Time) {
	var along []*flight
	soon := now.Add(k.lease / 10)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := len(k.held) - 1; i >= 0; i-- { // drop puts one seen already in the place
		f := k.held[i]
		f.mu.Lock()
		until, renewal := f.until, f.renewal
		f.mu.Unlock()
		at := until
		switch {
		case !now.Before(until):
			k.drop(f)
			f.lose()
			continue
		case extending:
		case !now.Before(renewal):
			due = append(due, f)
		case renewal.Before(until):
			at = renewal
			if renewal.Before(soon) {
				along = append(along, f)
			}
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if len(due) > 0 {
		due = append(due, along...)
	}
	return due, next
}

// extend extends leases. What fails is tried again after a tenth of the lease,
// a second at most.
func (k *keeper) extend(ctx context.Context, flights []*flight) {
	call, cancel := context.WithTimeout(ctx, min(callMost, k.lease/3))
	defer cancel()
	byDelivery := make(map[*duly.Delivery]*flight, len(flights))
	deliveries := make([]*duly.Delivery, len(flights))
	for i, f := range flights {
		deliveries[i], byDelivery[f.Delivery] = f.Delivery, f
	}
	sent := time.Now()
	lost, cancelled, err := k.source.Extend(call, deliveries, k.lease)
	if ctx.Err() == nil {
		k.health.report(err)
	}
	for _, d := range lost {
		f := byDelivery[d]
		delete(byDelivery, d)
		f.lose()
		k.remove([]*flight{f})
	}
	for _, d := range cancelled {
		if f := byDelivery[d]; f != nil { // else it is lost as well
			f.cancel()
			k.unqueue(f)
		}
	}
	for _, f := range byDelivery {
		f.mu.Lock()
		if err != nil {
			f.renewal = time.Now().Add(min(k.lease/10, time.Second))
		} else {
			f.until, f.renewal = leaseEnd(sent, k.lease), sent.Add(k.lease/3)
		}
		f.mu.Unlock()
	}
}
