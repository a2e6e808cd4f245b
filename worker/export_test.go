package worker

import "time"

// SweepAndClose closes a backlog while it gives back one flight that has waited
// for too long, and returns when the sweep has reached that flight. The flight
// is given back once release is closed, and closed is closed with the backlog.
func SweepAndClose(release <-chan struct{}) (closed <-chan struct{}) {
	sweeping, ended := make(chan struct{}), make(chan struct{})
	b := newBacklog(func(*flight, time.Duration) {
		close(sweeping)
		<-release
	}, newSlots(1, false), nil)
	b.put([]*flight{{queued: time.Now().Add(-stale)}})
	<-sweeping
	go func() {
		defer close(ended)
		b.close()
	}()
	return ended
}
