//go:build !linux

package main

import (
	"syscall"
	"time"
)

// nap sleeps as precisely as time.Sleep does.
func nap(d time.Duration) { time.Sleep(d) }

// ownGroup leaves a server in the group of this program.
func ownGroup() *syscall.SysProcAttr { return nil }
