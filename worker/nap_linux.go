package worker

import (
	"syscall"
	"time"
)

// nap sleeps by the kernel's clock, which is some 60 µs late where Go's timers
// are up to 1 ms late in a process with nothing else to do: epoll counts in ms.
// It holds a thread, so it is for less than that. It reports whether time has
// passed: in a test with a clock of its own it has not.
func nap(d time.Duration) bool {
	before := time.Now()
	t := syscall.NsecToTimespec(d.Nanoseconds())
	_ = syscall.Nanosleep(&t, nil) // if a signal cuts it short, there is more to sleep
	return time.Now().After(before)
}
