//go:build unix

package mutant

import (
	"os/exec"
	"syscall"
)

// apart has a command and what it starts be a group.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// end ends what a command has left behind, as one that panics leaves its servers.
func end(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // most often there is nobody
	}
}
