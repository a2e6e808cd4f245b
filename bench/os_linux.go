package main

import (
	"syscall"
	"time"
)

// nap sleeps to within some ten µs, which time.Sleep does not: an idle Go
// process waits in whole milliseconds. It holds a thread meanwhile.
func nap(d time.Duration) {
	if d > 0 {
		left := syscall.NsecToTimespec(d.Nanoseconds())
		_ = syscall.Nanosleep(&left, nil) // ends early by a signal: then a byte is a little early
	}
}

// ownGroup keeps a server out of the terminal's Ctrl-C, which would end it
// before this program has.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
