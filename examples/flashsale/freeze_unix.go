//go:build unix

package main

import (
	"os"
	"syscall"
)

// freeze stops a process where it is. It does not wait until that has happened.
func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// thaw lets it go on.
func thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
