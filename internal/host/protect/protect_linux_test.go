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

var withCgo bool

const asChild = "COUNTERSIGN_PROTECT_CHILD"

// A child of the test reports its state, before and after it protects itself.
func TestMain(m *testing.M) {
	switch os.Getenv(asChild) {
	case "":
		os.Exit(m.Run())
	case "starter":
		startsAnother()
		return
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

// startsAnother prints the ambient capabilities of this process and those of a program that it starts.
func startsAnother() {
	err := Process()
	status, readErr := exec.Command("/bin/sh", "-c", "grep -E '^Cap(Eff|Amb)' /proc/self/status").CombinedOutput()
	fmt.Println(err, readErr, string(status))
	fmt.Println("mine", hasEffective(unix.CAP_CHOWN))
}

func hasEffective(capability uint) bool {
	var data [2]unix.CapUserData
	_ = unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return data[0].Effective&(1<<capability) != 0
}

// What a service manager gives the agent is not for its providers, except for a low port.
func TestStartedProgramsDoNotInheritTheAgentsCapabilities(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives capabilities")
	}
	if withCgo {
		t.Skip("a build with cgo cannot, and the programs have none")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{asChild + "=starter", "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: 65534, Gid: 65534},
		AmbientCaps: []uintptr{unix.CAP_CHOWN, unix.CAP_KILL, unix.CAP_SYS_PTRACE, unix.CAP_NET_BIND_SERVICE},
	}
	said, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "<nil> <nil> CapEff:\t0000000000000400\nCapAmb:\t0000000000000400\n\nmine true\n"
	if string(said) != want {
		t.Errorf("got %q, want %q", said, want)
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
