package sds_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/sds"
)

const fewDescriptors = 64

// serveWithFewDescriptors serves until its standard input ends.
func serveWithFewDescriptors(path string) error {
	few := unix.Rlimit{Cur: fewDescriptors, Max: fewDescriptors}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		return err
	}
	server, err := sds.Listen(sds.Config{Path: path}, secrettest.New(keyPair("1")))
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println("serving")
	return server.Serve()
}

// startWithFewDescriptors returns the socket and the pid of a child that serves.
func startWithFewDescriptors(t *testing.T) (socket string, pid int) {
	t.Helper()
	socket = filepath.Join(proctest.Folder(t), "socket")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = []string{asServer + "=" + socket}, os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "serving\n" {
		t.Fatalf("the server prints %q, %v", line, err)
	}
	return socket, cmd.Process.Pid
}

// More connections than it has descriptors: who is connected is served on, some descriptors
// are left for a provider that has to be started, and who comes is served as soon as some
// have gone.
func TestServerKeepsDescriptorsInReserve(t *testing.T) {
	socket, pid := startWithFewDescriptors(t)
	conn := dial(t, socket)
	before := open(t, conn)
	before.ask("default")
	before.get()
	var taken []net.Conn
	for range 2 * fewDescriptors {
		conn, err := net.Dial("unix", socket)
		must(t, err)
		defer conn.Close()
		taken = append(taken, conn)
	}
	refused := 0
	for _, conn := range taken {
		must(t, conn.SetReadDeadline(time.Now().Add(patience)))
		if n, err := conn.Read(make([]byte, 1)); n == 0 {
			if refused++; os.IsTimeout(err) {
				t.Fatal("a connection is neither taken nor refused")
			}
		}
	}
	used, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil || len(used) > fewDescriptors*3/4 || refused < fewDescriptors {
		t.Errorf("%d of %d descriptors are used, %d connections were refused: %v", len(used), fewDescriptors, refused, err)
	}
	beside := open(t, conn)
	beside.ask("default")
	beside.get()
	for _, conn := range taken {
		_ = conn.Close()
	}
	for deadline := time.Now().Add(patience); !isTaken(t, socket); { // it looks for closed ones ten times a second
		if time.Now().After(deadline) {
			t.Fatal("no client is taken though all have gone")
		}
	}
	after := open(t, dial(t, socket))
	after.ask("default")
	after.get()
}

// isTaken reports whether the server takes one more connection.
func isTaken(t *testing.T, socket string) bool {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	must(t, err)
	defer conn.Close()
	n, _ := conn.Read(make([]byte, 1))
	return n == 1
}
