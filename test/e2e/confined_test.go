package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// confine, in the environment, makes the test's binary give up what the systemd unit
// takes away, and then be the program that its arguments name.
const confine = "E2E_CONFINE"

// beConfined does not return.
func beConfined() {
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_MDWE, unix.PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) // since Linux 6.3
	}
	if err == nil || err == unix.EINVAL {
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "confined:", err)
	os.Exit(1)
}

// A provider is executed from memory: MemoryDenyWriteExecute=yes must not be in its way.
func TestAgentRunsUnderUnitRestrictions(t *testing.T) {
	t.Parallel()
	a := prepareAgent(t, agentConfig{})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a.status = unixHTTP(t, a.statusSocket())
	a.process = prepareProcess(t, nil, self, filepath.Join(a.bin, "countersign"), "agent", "--config", a.config())
	a.cmd.Env = append(a.cmd.Env, confine+"=1")
	a.begin(t)
	poll(t, "all secrets", func() bool { return getPage(t, a.status, "/readyz") == "ok\n" || a.Ended() != nil })
	if a.Ended() != nil {
		t.Error("the agent has ended")
	}
}
