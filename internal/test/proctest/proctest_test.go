//go:build linux

package proctest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

func TestProcessAndItsChildrenEndWithTest(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time")
	}
	var p *proctest.Process
	t.Run("inner", func(t *testing.T) {
		p = proctest.Start(t, exec.Command("/bin/sh", "-c", "sleep 600 >/dev/null 2>&1 & echo started; wait"))
		p.Log.Await(t, proctest.Patience, "the start", func(text string) bool { return strings.Contains(text, "started") })
		if p.Ended() != nil {
			t.Error("it has ended")
		}
	})
	if p.Ended() == nil {
		t.Fatal("it outlives its test")
	}
	for deadline := time.Now().Add(proctest.Patience); syscall.Kill(-p.PID(), 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its child outlives the test")
		}
	}
}

func TestStopReturnsHowProcessEnded(t *testing.T) {
	p := proctest.Start(t, exec.Command("/bin/sh", "-c", "trap 'exit 7' TERM; echo started; while :; do sleep 0.01; done"))
	p.Log.Await(t, proctest.Patience, "the start", func(text string) bool { return strings.Contains(text, "started") })
	if !p.Stop(syscall.SIGTERM) {
		t.Error("it had to be killed")
	}
	if code := p.Ended().ExitCode(); code != 7 {
		t.Errorf("it ended with %d", code)
	}
	p.Kill()
}

func TestStoppedProcessRunsNoMoreAndCanEnd(t *testing.T) {
	p := proctest.Start(t, exec.Command("/bin/sh", "-c", "echo on; while :; do :; done"))
	p.Log.Await(t, proctest.Patience, "the start", func(text string) bool { return strings.Contains(text, "on") })
	p.Signal(syscall.SIGSTOP)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil || !strings.Contains(string(stat), ") T ") {
		t.Errorf("it is not stopped: %s, %v", stat, err)
	}
}
