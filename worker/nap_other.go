//go:build !linux

package worker

import "time"

// nap leaves the sleeping to timers.
func nap(time.Duration) bool { return false }
