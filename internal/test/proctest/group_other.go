//go:build !linux

package proctest

import (
	"os"
	"os/exec"
	"time"
)

func own(*exec.Cmd) {}

func killGroup(p *os.Process) { _ = p.Kill() }

func settle(*os.Process, os.Signal, time.Duration) {}

func resume(*os.Process) {}
