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
	socket = filepath.Join(shortDir(t), "socket")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = []string{asServer + "=" + socket}, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "serving\n" {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return socket, cmd.Process.Pid
}

// More connections than it has descriptors: who is connected is served on, and who
// comes is as soon as some have gone.
func TestAServerWithoutDescriptorsGoesOnAndRecovers(t *testing.T) {
	socket, pid := startWithFewDescriptors(t)
	conn := dial(t, socket)
	before := open(t, conn)
	before.ask("default")
	before.get()
	var taken []net.Conn
	for range 2 * fewDescriptors {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		taken = append(taken, conn)
	}
	exhausted(t, pid)
	beside := open(t, conn)
	beside.ask("default")
	beside.get()
	for _, conn := range taken {
		_ = conn.Close()
	}
	after := open(t, dial(t, socket))
	after.ask("default")
	after.get()
}

// exhausted waits until the process has all the descriptors it may have (and what
// it had before at higher numbers).
func exhausted(t *testing.T, pid int) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			t.Fatal(err)
		}
		if len(open) >= fewDescriptors {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("the server has %d descriptors open, and may have %d", len(open), fewDescriptors)
		}
	}
}
