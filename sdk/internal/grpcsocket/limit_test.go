package grpcsocket

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
)

// serve accepts connections until the test ends and keeps them open.
func serve(t *testing.T, room func() int, most int, log *logtest.Log) (dial func() net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "limit") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	l := limit(socket, log.Logger())
	l.room, l.most = room, most
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // until the client closes it
				defer conn.Close()
				_, _ = conn.Write([]byte{1})
				_, _ = conn.Read(make([]byte, 1))
			}()
		}
	}()
	t.Cleanup(func() {
		socket.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return func() net.Conn {
		conn, err := net.Dial("unix", socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// answered reports whether a connection is taken; one that is not is closed.
func answered(t *testing.T, conn net.Conn) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if os.IsTimeout(err) {
		t.Fatal(err)
	}
	if n == 0 {
		conn.Close()
	}
	return n == 1
}

func TestConnectionsPerProcessAreLimited(t *testing.T) {
	var log logtest.Log
	dial := serve(t, func() int { return 1000 }, 100, &log)
	var taken []net.Conn
	for range 100 {
		conn := dial()
		if !answered(t, conn) {
			t.Fatalf("connection %d is refused", len(taken)+1)
		}
		taken = append(taken, conn)
	}
	for range 20 {
		if answered(t, dial()) {
			t.Fatal("one process has more than it may")
		}
	}
	if text := log.String(); strings.Count(text, "too many are open") != 1 || !strings.Contains(text, "of_this_process=100") {
		t.Error(text)
	}
	taken[50].Close()
	for deadline := time.Now().Add(2 * time.Minute); !answered(t, dial()); {
		if time.Now().After(deadline) {
			t.Fatal("what was closed is still counted")
		}
	}
}

// fill uses up the descriptors below a number.
func fill(t *testing.T, below uintptr) (used []*os.File) {
	t.Helper()
	for fd := uintptr(0); fd < below; fd = used[len(used)-1].Fd() {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		used = append(used, file)
	}
	return used
}

func TestDescriptorsAreLeftForOthers(t *testing.T) {
	var log logtest.Log
	dial := serve(t, func() int { return 30 }, 100, &log)
	var used []*os.File
	for tries := 0; ; tries++ {
		used = append(used, fill(t, 30)...)
		if !answered(t, dial()) {
			break
		}
		if tries == 5 { // what other tests closed late was free below 30
			t.Fatal("it took a descriptor that is kept in reserve")
		}
	}
	for _, file := range used {
		file.Close()
	}
	if !answered(t, dial()) {
		t.Errorf("refused with descriptors to spare: %s", log.String())
	}
}
