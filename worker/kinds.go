package worker

import (
	"math/rand/v2"
	"time"
)

const (
	// kindPause is how long a flight may wait for a place among its kind. For as long
	// it is then given back, or for ten times that in which a place becomes free,
	// and kindBrief at least.
	kindPause = time.Second
	kindBrief = 50 * time.Millisecond

	// kindGap is the longest time between two flights of a kind that were given back:
	// a hundred come again in a second, however many there are.
	kindGap = 10 * time.Millisecond

	// kindFar bounds for how long one is given back when there are very many.
	kindFar = 10 * time.Minute
)

// A kindLimit bounds how many handlers of a kind run at once. The mutex of its
// backlog guards it.
//
// A source cannot be asked for other kinds, so those over the limit are popped, and
// are in the way until they are due again at another time. As many as the limit,
// and those that would be done before they could be fetched again, wait here for a
// place, without a slot. The others go back one behind the other, twice as close as
// the handlers end: closer would be a loop of pops that bring nothing, and further
// apart would leave places empty.
type kindLimit struct {
	most    int
	running int       // flights that have a place
	waiting []*flight // those that have none, first come, first served

	takes    time.Duration // a handler takes on average; zero before one has ended
	progress time.Time     // when one has ended, or the first has come
	last     time.Time     // when the last one given back is due again
}

func newKindLimits(limits map[string]int) map[string]*kindLimit {
	kinds := make(map[string]*kindLimit, len(limits))
	for kind, most := range limits {
		kinds[kind] = &kindLimit{most: min(most, 10_000)} // more never run
	}
	return kinds
}

// enter gives a flight a place, if there is one.
func (k *kindLimit) enter(f *flight, now time.Time) bool {
	if k.running == k.most {
		return false
	}
	if k.running == 0 {
		k.progress = now
	}
	k.running++
	f.limit, f.queued = k, now
	return true
}

// ended notes how long a handler took, by a moving average.
func (k *kindLimit) ended(took time.Duration, now time.Time) {
	k.progress = now
	if k.takes == 0 {
		k.takes = took
	}
	k.takes += (took - k.takes) / 8
}

// room is how many may wait for a place.
func (k *kindLimit) room() int {
	if k.takes == 0 {
		return k.most
	}
	return k.most + min(int(stale)*k.most/int(k.takes), batchMost)
}

// postpone is for how long a flight is given back for which there is no room.
func (k *kindLimit) postpone(now time.Time) time.Duration {
	k.last = k.last.Add(min(k.pace(now)/2, kindGap))
	if first := now.Add(k.pause(now)); k.last.Before(first) {
		k.last = first
	}
	if far := now.Add(kindFar); k.last.After(far) {
		k.last = far
	}
	return k.last.Sub(now)
}

// pace is how long it takes until a place becomes free.
func (k *kindLimit) pace(now time.Time) time.Duration {
	return max(k.takes/time.Duration(k.most), now.Sub(k.progress))
}

// pause is for how long a flight is given back at least, and a little more, so that
// workers do not come at the same time.
func (k *kindLimit) pause(now time.Time) time.Duration {
	d := min(max(10*min(k.pace(now), kindPause), kindBrief), kindPause)
	return d + rand.N(d/10) //nolint:gosec // secures nothing
}
