//go:build linux

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// asChild in the environment makes this test's binary the program that it names.
const asChild = "PROXY_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(asChild); what != "" {
		os.Exit(beChild(what))
	}
	goleak.VerifyTestMain(m)
}

// beChild is what a child does; "family" leaves a child of its own in its group.
func beChild(what string) int {
	ends := make(chan os.Signal, 8)
	signal.Notify(ends, syscall.SIGTERM, syscall.SIGUSR1)
	switch what {
	case "exit 3":
		return 3
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "family", "stubborn family":
		grandchild := exec.Command("sleep", "1000")
		_ = grandchild.Start()
		fmt.Println("grandchild", grandchild.Process.Pid)
	case "descriptors":
		open, _ := filepath.Glob("/proc/self/fd/*")
		for _, fd := range open {
			target, _ := os.Readlink(fd)
			fmt.Println("descriptor", filepath.Base(fd), target)
		}
		fmt.Println("environment", strings.Join(os.Environ(), " "))
		return 0
	case "listener":
		l, _ := net.Listen("tcp", "127.0.0.1:0")
		fmt.Println("listens")
		<-ends
		l.Close()
		fmt.Println("listens no more")
	case "subreaper":
		return beSubreaper()
	}
	fmt.Println("ready")
	for s := range ends {
		fmt.Println("got", s)
		if s == syscall.SIGTERM && !strings.HasPrefix(what, "stubborn") {
			return 4
		}
	}
	return 0
}

// beSubreaper makes an orphan that ends, and reports when it is gone.
func beSubreaper() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go ReapOrphans(ctx, 300*time.Millisecond, // longer than a child of our own is a zombie on a busy machine
		slog.New(slog.DiscardHandler))
	for n := range 20 { // children of our own are left to who started them
		if err := exec.Command("sh", "-c", "sleep 0.01; exit 7").Run(); err == nil || err.Error() != "exit status 7" {
			fmt.Println("own child", n, err)
			return 1
		}
	}
	out, err := exec.Command("sh", "-c", "sleep 0.1 & echo $!").Output()
	if err != nil {
		return 1
	}
	orphan, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	for syscall.Kill(orphan, 0) == nil && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("orphan gone", ctx.Err() == nil)
	return 0
}

// real is a process that was launched, and what it writes.
type real struct {
	child
	lines chan string
}

// launchReal launches this test's binary as what, as Run does.
func launchReal(t *testing.T, what string, env ...string) real {
	t.Helper()
	proctest.NeedsProcess(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// launch hands over the standard output of this process.
	stdout.Lock()
	saved := os.Stdout
	os.Stdout = w
	c, err := launch(start{argv: []string{"/proc/self/exe"}, env: append(env, asChild+"="+what)})
	os.Stdout = saved
	stdout.Unlock()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := real{c, make(chan string, 100)}
	go func() {
		defer r.Close()
		defer close(out.lines)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			out.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		c.Kill()
		<-c.Ended()
		for range out.lines { //nolint:revive // until the pipe is closed
		}
	})
	return out
}

var stdout sync.Mutex

// line waits for a line that begins with a word, and returns the rest.
func (r real) line(t *testing.T, word string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-r.lines:
			if rest, found := strings.CutPrefix(line, word); found {
				return strings.TrimSpace(rest)
			}
			if !ok {
				t.Fatalf("it ended without a line %q", word)
			}
		case <-deadline:
			t.Fatalf("waited in vain for a line %q", word)
		}
	}
}

func (r real) wait(t *testing.T) exit {
	t.Helper()
	select {
	case <-r.Ended():
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	return r.Exit()
}

func TestExitCodeFollowsShellConvention(t *testing.T) {
	for what, want := range map[string]exit{"exit 3": {code: 3}, "kill": {137, syscall.SIGKILL}} {
		if got := launchReal(t, what).wait(t); got != want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestSignalReachesProcessAndGroupEndsWithIt(t *testing.T) {
	c := launchReal(t, "family", path())
	grandchild, _ := strconv.Atoi(c.line(t, "grandchild"))
	c.line(t, "ready")
	if group, err := syscall.Getpgid(grandchild); err != nil || group != c.PID() {
		t.Errorf("the grandchild's group is %d, %v; want %d", group, err, c.PID())
	}
	for _, s := range []os.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		if err := c.Signal(s); err != nil {
			t.Fatal(err)
		}
		c.line(t, "got "+s.String())
	}
	if got := c.wait(t); got != (exit{code: 4}) {
		t.Errorf("it ended with %v", got)
	}
	awaitGone(t, grandchild)
}

func TestKillEndsWholeGroup(t *testing.T) {
	c := launchReal(t, "stubborn family", path())
	grandchild, _ := strconv.Atoi(c.line(t, "grandchild"))
	c.line(t, "ready")
	c.Kill()
	if got := c.wait(t); got.signal != syscall.SIGKILL {
		t.Errorf("it ended with %v", got)
	}
	awaitGone(t, grandchild)
	c.Kill() // and again: it is reaped, nothing happens
}

// awaitGone waits until a process is dead; its new parent may leave it a zombie.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	polling.Until(t, patience, fmt.Sprintf("process %d is gone", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || bytes.Contains(stat, []byte(") Z "))
	})
}

func TestProxyInheritsNoDescriptor(t *testing.T) {
	// One that is not close-on-exec, as a shell hands it to the agent.
	null, err := syscall.Open("/dev/zero", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(null)
	c := launchReal(t, "descriptors", "A=b")
	for {
		line, ok := <-c.lines
		if !ok {
			t.Fatal("it ended early")
		}
		if env, found := strings.CutPrefix(line, "environment "); found {
			if env != "A=b "+asChild+"=descriptors" {
				t.Errorf("its environment is %q", env)
			}
			return
		}
		if strings.Contains(line, "/dev/zero") {
			t.Errorf("it has %s", line)
		}
	}
}

func TestListeningProcessIsDetected(t *testing.T) {
	c := launchReal(t, "listener")
	c.line(t, "listens")
	if !c.Listens() {
		t.Error("its socket is not seen")
	}
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.line(t, "listens no more")
	if c.Listens() {
		t.Error("it is reported as listening")
	}
	if !listens(1 << 30) {
		t.Error("what cannot be known is taken for a process that does not listen")
	}
}

func TestOrphansAreReapedButOwnChildrenAreNot(t *testing.T) {
	proctest.NeedsProcess(t)
	c := launchReal(t, "subreaper", path())
	if got := c.line(t, "orphan gone"); got != "true" {
		t.Error("the orphan was not reaped")
	}
	if got := c.wait(t); got.code != 0 {
		t.Errorf("it ended with %v", got)
	}
	if got := still([]int{1, 2, 3}, []int{3, 4, 1}); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("orphans are %v: those that are zombies for the second time", got)
	}
	// This process is not a subreaper.
	ReapOrphans(t.Context(), time.Hour, nil)
}

func TestRunWithRealProcess(t *testing.T) {
	proctest.NeedsProcess(t)
	p, err := New(Config{Command: []string{"sh", "-c", "exit 9"}, Restart: Never})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Run(t.Context()); got != 9 {
		t.Errorf("the exit code is %d", got)
	}
	_, err = New(Config{Command: []string{"no-such-program"}})
	if err == nil || !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), `cannot run the program "no-such-program"`) {
		t.Errorf("got %v", err)
	}
}
