package lock

import "time"

// An Event is something that happened to a lock, as an Observer is told of it.
type Event struct {
	Kind  EventKind
	Name  string
	Owner string // of the lease; of Refused and Adopted, who holds the lock
	Fence uint64 // of the lease, if there is one

	// Took is how long the caller waited for an answer: of Acquired, Refused,
	// Failed and Renewed. Of Released, Lost and HandedOver it is how long the lock
	// was held.
	Took time.Duration

	Err error // why it is not as wished
}

// An EventKind says what happened. Names are fit to be a metric's label.
type EventKind string

// The kinds of events.
const (
	Acquired EventKind = "acquired" // a lease began
	Refused  EventKind = "refused"  // another held the lock, as long as was waited
	Failed   EventKind = "failed"   // the lock could not be had, for another reason
	Renewed  EventKind = "renewed"  // a lease was extended, or could not be: then Err is set
	Released EventKind = "released" // a lease was given up
	Lost     EventKind = "lost"     // a lease ended by itself
	Adopted  EventKind = "adopted"  // a lock without a TTL was found, and given one

	HandedOver EventKind = "handed over" // a lease ended for another process to go on
)
