package worker

import (
	"slices"
	"sync"
	"time"
)

// stale is how long a flight may wait for a goroutine of the pool before it is
// given back, for another worker may be free.
const stale = 30 * time.Millisecond

// A backlog holds the flights that wait for a goroutine of the pool, first come,
// first served, and those that wait until fewer of their kind run.
type backlog struct {
	giveBack func(f *flight, in time.Duration)
	slots    *slots

	mu     sync.Mutex // guards what follows
	kinds  map[string]*kindLimit
	filled sync.Cond
	items  []*flight
	closed bool
	idle   int         // goroutines that wait
	sweep  *time.Timer // runs while flights wait
}

func newBacklog(giveBack func(*flight, time.Duration), s *slots, kinds map[string]int) *backlog {
	b := &backlog{giveBack: giveBack, slots: s, kinds: newKindLimits(kinds)}
	b.filled.L = &b.mu
	return b
}

// put adds flights; once the backlog is closed it gives them back.
func (b *backlog) put(flights []*flight) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		b.all(flights)
		return
	}
	before := len(b.items)
	if len(b.kinds) == 0 {
		b.items = append(b.items, flights...)
	} else {
		b.admit(flights)
	}
	for range min(len(b.items)-before, b.idle) {
		b.filled.Signal()
	}
	b.watch()
	b.mu.Unlock()
}

// admit adds flights as far as the limits of their kinds allow. mu is held.
func (b *backlog) admit(flights []*flight) {
	now := time.Now()
	for _, f := range flights {
		k := b.kinds[f.Kind]
		switch {
		case k == nil || k.enter(f, now) || f.late(now): // what has expired is not run
			b.items = append(b.items, f)
		case f.wasCancelled(): // before it came here, so nobody will unqueue it
			b.giveBack(f, 0)
		case f.LockKey == "" && len(k.waiting) < k.room(): // others may wait for the key
			f.queued = now
			k.waiting = append(k.waiting, f)
			b.slots.lend()
		default:
			b.giveBack(f, k.postpone(now))
		}
	}
}

// leave gives up the place among its kind that a flight has, for one that waits.
func (b *backlog) leave(f *flight) {
	if f.limit == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	f.limit.ended(now.Sub(f.queued), now)
	b.vacate(f.limit, now)
	b.watch()
}

// vacate frees a place. Who waits for it came before all that wait for a goroutine
// only. mu is held.
func (b *backlog) vacate(k *kindLimit, now time.Time) {
	k.running--
	if len(k.waiting) == 0 {
		return
	}
	f := b.next(k)
	k.enter(f, now)
	b.items = slices.Insert(b.items, 0, f)
	b.filled.Signal()
}

// next takes the first that waits for a place. mu is held.
func (b *backlog) next(k *kindLimit) *flight {
	f := k.waiting[0]
	k.waiting[0] = nil
	k.waiting = k.waiting[1:]
	b.slots.recall()
	return f
}

// unqueue gives back a flight that was cancelled while it waited for a place.
func (b *backlog) unqueue(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.kinds[f.Kind]
	if k == nil {
		return
	}
	if i := slices.Index(k.waiting, f); i >= 0 {
		k.waiting = slices.Delete(k.waiting, i, i+1)
		b.slots.recall()
		b.giveBack(f, 0)
	}
}

// take waits for a flight; false means that the backlog is closed.
func (b *backlog) take() (*flight, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle++
	for len(b.items) == 0 && !b.closed {
		b.filled.Wait()
	}
	b.idle--
	if b.closed {
		return nil, false
	}
	f := b.items[0]
	b.items[0] = nil
	b.items = b.items[1:]
	return f, true
}

// close ends all takes and gives back what is waiting.
func (b *backlog) close() {
	b.mu.Lock()
	left := b.items
	for _, k := range b.kinds {
		for len(k.waiting) > 0 {
			left = append(left, b.next(k))
		}
	}
	b.items, b.closed = nil, true
	if b.sweep != nil {
		b.sweep.Stop()
	}
	b.filled.Broadcast()
	b.mu.Unlock()
	b.all(left)
}

// watch sees to it that what waits for too long is given back. mu is held.
func (b *backlog) watch() {
	if b.closed {
		return
	}
	var at time.Time
	if len(b.items) > b.idle {
		at = b.items[0].queued.Add(stale)
	}
	for _, k := range b.kinds {
		if len(k.waiting) > 0 && (at.IsZero() || k.waiting[0].queued.Add(kindPause).Before(at)) {
			at = k.waiting[0].queued.Add(kindPause)
		}
	}
	switch {
	case at.IsZero():
	case b.sweep == nil:
		b.sweep = time.AfterFunc(time.Until(at), b.sweepStale)
	default:
		b.sweep.Reset(time.Until(at))
	}
}

// sweepStale holds mu until all is given back: what comes after close would find
// its settler gone.
func (b *backlog) sweepStale() {
	now := time.Now()
	before := now.Add(-stale)
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.items)-b.idle && !b.items[n].queued.After(before) {
		n++
	}
	old := b.items[:n:n]
	b.items = b.items[n:]
	if len(old) > 0 {
		b.slots.slow()
		b.all(old)
	}
	for _, f := range old {
		if f.limit != nil {
			b.vacate(f.limit, now)
		}
	}
	for _, k := range b.kinds {
		for len(k.waiting) > 0 && !k.waiting[0].queued.After(now.Add(-kindPause)) {
			b.giveBack(b.next(k), k.pause(now))
		}
	}
	b.watch()
}

func (b *backlog) all(flights []*flight) {
	for _, f := range flights {
		b.giveBack(f, 0)
	}
}
