package process_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/host/process"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sleep(t *testing.T) *proctest.Process {
	t.Helper()
	return proctest.Start(t, exec.Command("sleep", "3600"))
}

// hold returns the process, and what is closed when it has ended.
func hold(t *testing.T, pid int) (*process.Held, chan struct{}) {
	t.Helper()
	ended := make(chan struct{})
	held, err := process.Hold(int32(pid), func() { close(ended) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	return held, ended
}

func TestHeldProcessHasItsAttributes(t *testing.T) {
	child := sleep(t)
	held, _ := hold(t, child.PID())
	uid, gid, err := held.User()
	if err != nil || int(uid) != os.Getuid() || int(gid) != os.Getgid() || int(held.PID()) != child.PID() {
		t.Errorf("process %d of user %d, group %d, %v", held.PID(), uid, gid, err)
	}
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "sleep")
	if err := os.WriteFile(other, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]bool{path: true, other: false, other + "-missing": false} {
		if got, err := held.Runs(program); got != want || err != nil {
			t.Errorf("runs %s: %t, %v", program, got, err)
		}
	}
	if own, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		_, want, v2 := strings.Cut(string(own), "0::")
		got, err := held.Cgroup()
		if v2 && (got != strings.TrimSpace(want) || err != nil) || !v2 && err == nil {
			t.Errorf("cgroup %q, %v; want %q", got, err, want)
		}
	}
}

// Without descriptors no file is read and no provider starts.
func TestHeldProcessesLeaveDescriptorsForFiles(t *testing.T) {
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: 200, Max: was.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) })
	var err error
	for n := 0; err == nil && n < 200; n++ {
		var held *process.Held
		if held, err = process.Hold(int32(os.Getpid()), func() {}); err == nil {
			t.Cleanup(func() { _ = held.Close() })
		}
	}
	if !errors.Is(err, syscall.EMFILE) || errors.Is(err, process.ErrNotFound) {
		t.Errorf("held without end: %v", err)
	}
	for range 40 {
		file, err := os.Open("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
	}
}

// An upgrade replaces the file of a program that runs. A process that was held before keeps its program.
func TestReplacedProgramIsKnownToItsHolder(t *testing.T) {
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sleep")
	write := func(name string) {
		if err := os.WriteFile(name, content, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(path)
	child := proctest.Start(t, exec.Command(path, "3600"))
	before, _ := hold(t, child.PID())
	unasked, _ := hold(t, child.PID())
	if ok, err := before.Runs(path); !ok || err != nil {
		t.Fatalf("before: %t, %v", ok, err)
	}
	write(path + ".new")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	after, _ := hold(t, child.PID())
	for held, want := range map[*process.Held]bool{before: true, unasked: false, after: false} {
		if ok, err := held.Runs(path); ok != want || err != nil {
			t.Errorf("after: %t, %v; want %t", ok, err, want)
		}
	}
	if link, err := os.Readlink("/proc/" + strconv.Itoa(child.PID()) + "/exe"); err != nil || link != path+" (deleted)" {
		t.Errorf("the kernel calls it %q, %v", link, err)
	}
}

// A process that runs another program has not the first one's identity.
func TestProcessThatRunsAnotherProgramIsAnother(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(shell, "-c", "read line; exec sleep 3600")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	held, _ := hold(t, proctest.Start(t, cmd).PID())
	eventually := time.Now().Add(time.Minute)
	for ok := false; !ok; { // until the child has become the shell
		if ok, err = held.Runs(shell); err != nil || time.Now().After(eventually) {
			t.Fatalf("runs the shell: %t, %v", ok, err)
		}
	}
	if err := in.Close(); err != nil { // "read" fails, and the next command follows
		t.Fatal(err)
	}
	for ok := true; ok; {
		if ok, err = held.Runs(shell); err != nil || time.Now().After(eventually) {
			t.Fatalf("still runs the shell: %t, %v", ok, err)
		}
	}
}

func TestEndOfHeldProcessIsNoticedBeforeItsPIDIsAnothers(t *testing.T) {
	child := sleep(t)
	held, ended := hold(t, child.PID())
	child.Kill()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the end was not noticed")
	}
	recycle(t, child.PID())
	if _, _, err := held.User(); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("user: %v", err)
	}
	if _, err := held.Runs("/bin/sleep"); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("runs: %v", err)
	}
	if _, err := held.Cgroup(); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("cgroup: %v", err)
	}
}

// recycle starts a process with the PID of one that has ended, where this user may choose PIDs.
func recycle(t *testing.T, pid int) {
	t.Helper()
	for range 100 {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Logf("PID %d is not used again: %v", pid, err)
			return
		}
		if sleep(t).PID() == pid {
			return
		}
	}
	t.Log("other processes took the PID")
}

func TestZombieHasEnded(t *testing.T) {
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait() //nolint:errcheck // it only has to be reaped
	ended := make(chan struct{})
	held, err := process.Hold(int32(child.Process.Pid), func() { close(ended) })
	if err != nil {
		if !errors.Is(err, process.ErrNotFound) {
			t.Error(err)
		}
		return // it was quick
	}
	defer held.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the end was not noticed")
	}
}

func TestClosedHoldIsSilent(t *testing.T) {
	child := sleep(t)
	held, ended := hold(t, child.PID())
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	child.Kill()
	select {
	case <-ended:
		t.Error("ended was called after Close")
	case <-time.After(20 * time.Millisecond):
	}
}

func TestThreadsAndMissingProcessesAreNotFound(t *testing.T) {
	thread := make(chan int)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		runtime.LockOSThread()
		thread <- syscall.Gettid()
		<-stop
	}()
	for _, pid := range []int32{0, -1, math.MaxInt32, int32(<-thread)} {
		if int(pid) == os.Getpid() {
			continue
		}
		if held, err := process.Hold(pid, func() {}); !errors.Is(err, process.ErrNotFound) {
			t.Errorf("%d: %v, %v", pid, held, err)
		}
	}
}

// In a container that has the machine's /proc, its numbers are those of other processes.
func TestProcOfAnotherNamespaceIsNotRead(t *testing.T) {
	const inside = "COUNTERSIGN_TEST_NAMESPACE"
	if os.Getenv(inside) != "" {
		held, err := process.Hold(int32(os.Getpid()), func() {})
		if err == nil || errors.Is(err, process.ErrNotFound) || !strings.Contains(err.Error(), "PID namespace") {
			t.Errorf("%v, %v", held, err)
		}
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), inside+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID}
	out, err := child.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Logf("this user may not make a namespace: %v", err)
	} else if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
