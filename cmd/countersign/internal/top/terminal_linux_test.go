package top

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// asTop in the environment makes the test binary the command.
const asTop = "TOP_TEST_COMMAND"

// testPatience is how long a test waits for a process.
const testPatience = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asTop) != "" {
		os.Exit(cli.Main(func(ctx context.Context, args []string, env environ.Vars, streams cli.IO) int {
			return cli.Execute(ctx, cli.Root("countersign", "test", Command(env)), args, streams)
		}))
	}
	os.Exit(m.Run())
}

// terminal is a pseudo-terminal with "countersign top" in it.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	ended  chan error

	mu   sync.Mutex
	text strings.Builder // all that was written
	more chan struct{}
}

func openTerminal(t *testing.T, env string, args ...string) *terminal {
	t.Helper()
	proctest.NeedsProcess(t)
	master, slave := openPTY(t)
	x := &terminal{t: t, master: master, ended: make(chan error, 1), more: make(chan struct{}, 1)}
	x.resize(100, 30)
	x.cmd = exec.Command("/proc/self/exe", append([]string{"top"}, args...)...)
	x.cmd.Env = append(os.Environ(), asTop+"=1", "TERM=xterm", env)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, x.cmd.Start())
	must(t, slave.Close())
	var reading sync.WaitGroup
	reading.Go(x.read)
	go func() { x.ended <- x.cmd.Wait() }()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill() // it may have ended
		reading.Wait()
		_ = master.Close()
	})
	return x
}

func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	return master, slave
}

var must = fatal.If

// read ends when no process has the terminal any more.
func (x *terminal) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := x.master.Read(buffer)
		if err != nil {
			return
		}
		x.mu.Lock()
		x.text.Write(buffer[:n])
		x.mu.Unlock()
		select {
		case x.more <- struct{}{}:
		default:
		}
	}
}

func (x *terminal) written() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

// await waits until what was written from a place on fits, and returns the end of it.
func (x *terminal) await(from int, pattern string) (end int) {
	x.t.Helper()
	wanted, deadline := regexp.MustCompile(pattern), time.After(testPatience)
	for {
		if found := wanted.FindStringIndex(x.written()[from:]); found != nil {
			return from + found[1]
		}
		select {
		case <-x.more:
		case <-deadline:
			x.t.Fatalf("%s was not written:\n%q", pattern, x.written()[from:])
		}
	}
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	_, err := x.master.WriteString(keys)
	must(x.t, err)
}

func (x *terminal) resize(width, height uint16) {
	x.t.Helper()
	must(x.t, unix.IoctlSetWinsize(int(x.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: height, Col: width}))
}

// mustEnd waits for the process, which must have left the terminal as it was.
func (x *terminal) mustEnd() {
	x.t.Helper()
	select {
	case err := <-x.ended:
		must(x.t, err)
	case <-time.After(testPatience):
		x.t.Fatal("it goes on")
	}
	x.await(0, regexp.QuoteMeta(leave)+"$")
	state, err := unix.IoctlGetTermios(int(x.master.Fd()), unix.TCGETS)
	must(x.t, err)
	if state.Lflag&(unix.ICANON|unix.ECHO) != unix.ICANON|unix.ECHO {
		x.t.Error("the terminal is still raw")
	}
	// Its own commands aside, nothing has reached the terminal that it would obey.
	own := regexp.MustCompile(`\x1b\[(\?(1049|25|7)[hl]|[HKJ]|\d+;1H|(31|32|0)m)|\r\n`)
	if left := own.ReplaceAllString(x.written(), ""); regexp.MustCompile(`[\x00-\x1f\x7f\x{80}-\x{9f}\x{202e}]`).MatchString(left) {
		x.t.Errorf("control characters were written: %q", left)
	}
}

// agentAt serves a status, and none while it is away.
func agentAt(t *testing.T, status *atomic.Value) string {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if text, _ := status.Load().(string); text != "" {
			fmt.Fprint(w, text)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	})
}

func statusWith(serial string, streams int) string {
	open := strings.TrimSuffix(strings.Repeat(`{"caller":"uid:1000"},`, streams), ",")
	return `{"secrets":[{"name":"default\u001b[2J\u009b2J\u202e","held":true,"item":{"serial":"` + serial + `"}}],"open_streams":[` + open + `]}`
}

func TestTopShowsRotationsScrollsAndQuits(t *testing.T) {
	t.Parallel()
	var status, other atomic.Value
	status.Store(statusWith("0a11", 60))
	other.Store("")
	x := openTerminal(t, "NO_COLOR=", agentAt(t, &status), agentAt(t, &other), "--interval=200ms")
	at := x.await(0, `default\\x1b\[2J\\u009b2J\\u202e`)
	at = x.await(at, `0a11`)
	x.await(0, `away: it answers 502`)
	status.Store(statusWith("0b22", 60))
	other.Store(`{"secrets":[]}`)
	at = x.await(at, `0b22`)
	x.await(0, `rotated, serial 0b22`)
	x.await(0, `answers again`) // both before scrolling: they leave the screen
	at = x.await(at, `line 1 of`)
	x.press("G")
	at = x.await(at, `line [1-9][0-9] of`)
	x.resize(20, 10)
	at = x.await(at, `\x1b\[10;1H`)
	other.Store("")
	x.press("g")
	at = x.await(at, `AGENT`)
	x.press("p")
	x.await(at, `pause`) // the line is cut
	x.press("q")
	x.mustEnd()
	if !strings.Contains(x.written(), "\x1b[32m") {
		t.Error("there is no color")
	}
}

func TestTopWithoutColorEndsBySignalOrKey(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*terminal){
		"Ctrl-C":  func(x *terminal) { x.press("\x03") },
		"SIGTERM": func(x *terminal) { must(t, x.cmd.Process.Signal(syscall.SIGTERM)) },
	} {
		var status atomic.Value
		status.Store(statusWith("0a11", 1))
		x := openTerminal(t, "NO_COLOR=1", agentAt(t, &status))
		x.await(0, `0a11`)
		end(x)
		x.mustEnd()
		if strings.Contains(x.written(), "\x1b[32m") || strings.Contains(x.written(), "\x1b[31m") {
			t.Errorf("%s: there are colors", how)
		}
	}
}

// An agent that hangs delays neither the others nor the keys.
func TestHangingAgentDelaysNoKey(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(hang) })
	var status atomic.Value
	status.Store(statusWith("0a11", 1))
	x := openTerminal(t, "NO_COLOR=1", slow, agentAt(t, &status))
	x.await(0, `0a11`)
	x.press("q")
	x.mustEnd()
}
