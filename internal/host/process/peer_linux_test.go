package process_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/host/process"
)

func TestPeerOfConnectionIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	ours, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := socket.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for _, pid := range []int{os.Getpid(), 0} { // 0: it is in another PID namespace
		held, err := process.HoldPeer(theirs.(*net.UnixConn), int32(pid), process.SinceBoot(), func() { t.Error("it has ended") })
		if err != nil {
			t.Fatal(err)
		}
		uid, _, err := held.User()
		if visible := pid != 0; visible && (err != nil || int(uid) != os.Geteuid()) || !visible && !errors.Is(err, process.ErrHidden) {
			t.Errorf("PID %d: user %d, %v", pid, uid, err)
		}
		if err := held.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A process that began after the connection has its PID from the one that opened it.
func TestLaterProcessIsNotThePeer(t *testing.T) {
	before := process.SinceBoot() - 20*time.Millisecond // the kernel counts in 10 ms
	child := sleep(t)
	pid := int32(child.PID())
	if held, err := process.HoldSince(pid, before, func() {}); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("%v, %v", held, err)
	}
	ended := make(chan struct{})
	held, err := process.HoldSince(pid, process.SinceBoot(), func() { close(ended) })
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	child.Kill()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the end was not noticed")
	}
}
