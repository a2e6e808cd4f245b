package lock

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// maxBatch is how many leases are extended in one round trip.
const maxBatch = 500

// A keeper renews the leases that are kept alive, those that are due together in
// one round trip. It has a goroutine only while one is under way.
type keeper struct {
	store store

	mu       sync.Mutex // guards what follows
	schedule schedule
	timer    *time.Timer
}

// A due lease is one that is to be renewed at a time.
type due struct {
	*Lease
	at time.Time
}

// add sets the next renewal of a lease, which has none.
func (k *keeper) add(l *Lease, in time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.place == 0 {
		heap.Push(&k.schedule, due{l, time.Now().Add(in)})
		k.armLocked()
	}
}

// drop takes a lease out of the schedule.
func (k *keeper) drop(l *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.place > 0 {
		heap.Remove(&k.schedule, l.place-1)
		k.armLocked()
	}
}

// armLocked sets the timer for the earliest.
func (k *keeper) armLocked() {
	switch {
	case len(k.schedule) == 0:
		if k.timer != nil {
			k.timer.Stop()
		}
	case k.timer == nil:
		k.timer = time.AfterFunc(time.Until(k.schedule[0].at), k.renew)
	default:
		k.timer.Reset(time.Until(k.schedule[0].at))
	}
}

// renew extends what is due. Batches do not wait for one another.
func (k *keeper) renew() {
	for {
		batch := k.takeDue()
		if len(batch) == 0 {
			return
		}
		go k.extend(batch)
	}
}

// takeDue removes from the schedule what is due, and what is so nearly: it is
// sent with the others a thirtieth of its TTL early.
func (k *keeper) takeDue() (batch []*Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for now := time.Now(); len(k.schedule) > 0 && len(batch) < maxBatch; {
		first := k.schedule[0]
		if first.at.After(now.Add(first.ttl / 30)) {
			break
		}
		heap.Pop(&k.schedule)
		batch = append(batch, first.Lease)
	}
	k.armLocked()
	return batch
}

// extend extends leases, and sets their next renewal. All of them have a third
// of the shortest TTL for it.
func (k *keeper) extend(leases []*Lease) {
	limit := leases[0].ttl
	batch := make([]*renewal, len(leases))
	for i, l := range leases {
		batch[i] = l.newRenewal(l.ttl)
		limit = min(limit, l.ttl)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit/3)
	defer cancel()
	k.store.extend(ctx, batch)
	for i, l := range leases {
		if l.renewed(batch[i]) == nil {
			l.keepOn(l.ttl / 3)
		} else {
			l.keepOn(l.ttl / 20)
		}
	}
}

// A schedule is a heap of leases by the time of their next renewal. Each knows
// its place.
type schedule []due

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at.Before(s[j].at) }

func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i+1, j+1
}

// Push and Pop are for package heap.
func (s *schedule) Push(x any) {
	d := x.(due) //nolint:forcetypeassert // the keeper pushes nothing else
	*s = append(*s, d)
	d.place = len(*s)
}

// Pop removes the last.
func (s *schedule) Pop() any {
	last := (*s)[len(*s)-1]
	(*s)[len(*s)-1] = due{} // else it would be kept from the garbage collector
	*s = (*s)[:len(*s)-1]
	last.place = 0
	return last
}
