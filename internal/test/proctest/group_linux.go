package proctest

import (
	"os"
	"os/exec"
	"syscall"
)

// own puts the command into a group of its own. A test binary that dies takes it along: one
// that hits its time limit runs no cleanup.
func own(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
