package protect

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const asChild = "COUNTERSIGN_PROTECT_CHILD"

// A child of the test reports its state, before and after it protects itself.
func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	before, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	err := Process()
	after, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	var core unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_CORE, &core)
	fmt.Println(Traced(), before, after, core.Cur, core.Max, err)
}

func TestProtectedProcessIsNotDumpableAndADebuggedOneIsRecognized(t *testing.T) {
	t.Parallel()
	for _, traced := range []bool{false, true} {
		got := runChild(t, traced)
		if want := fmt.Sprintln(traced, "1 0 0 0 <nil>"); got != want {
			t.Errorf("traced %v: %q, want %q", traced, got, want)
		}
	}
}

// runChild starts this test's binary, as a debugger does or not, and returns what it prints.
func runChild(t *testing.T, traced bool) string {
	t.Helper()
	runtime.LockOSThread() // which alone may continue the child
	defer runtime.UnlockOSThread()
	var out strings.Builder
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stdout = []string{asChild + "=yes"}, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: traced}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for pid := cmd.Process.Pid; traced; {
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil || !status.Stopped() {
			break // it has ended
		}
		signal := int(status.StopSignal())
		if signal == int(unix.SIGTRAP) {
			signal = 0 // of the exec
		}
		if err := unix.PtraceCont(pid, signal); err != nil {
			t.Error(err)
		}
	}
	_ = cmd.Wait() // of a traced one, nothing is left to wait for
	return out.String()
}
