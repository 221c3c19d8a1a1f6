package provider_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// The kernel gives the files of a process that is not dumpable to root: no other process of the same
// user can open its memory.
func TestProvidersMemoryIsClosedToItsUser(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	c := byHand(t, true, func(cmd *exec.Cmd) {
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
	})
	for _, file := range []string{"environ", "mem", "maps", "exe"} {
		info, err := os.Lstat(fmt.Sprintf("/proc/%d/%s", c.process.Pid, file))
		must(t, err)
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 0 {
			t.Errorf("%s belongs to the user %d", file, owner)
		}
	}
	if _, err := c.Metadata(t.Context()); err != nil {
		t.Error(err)
	}
}
