package proctest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
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

// settle returns when a SIGSTOP has stopped all threads of a process, or patience is over: one
// that runs goes on for a while after kill has returned.
func settle(p *os.Process, s os.Signal, patience time.Duration) {
	for end := time.Now().Add(patience); s == syscall.SIGSTOP && !stopped(p.Pid) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// stopped looks at the state of each thread; see proc_pid_stat(5).
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is right
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if after := stat[bytes.LastIndexByte(stat, ')')+1:]; err == nil && !bytes.HasPrefix(after, []byte(" T")) {
			return false
		}
	}
	return true
}

// resume lets a stopped process take the signal that ends it.
func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
