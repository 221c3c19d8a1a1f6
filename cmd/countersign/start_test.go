package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

func TestServiceManagerIsNotifiedWhileCAIsAway(t *testing.T) {
	proctest.NeedsProcess(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := proctest.Folder(t)
	if err := os.Link(oddProvider(t), filepath.Join(dir, "countersign-provider-silent")); err != nil {
		t.Fatal(err)
	}
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	config := "namespace: a\nservice_account: web\nsocket: {path: ./sock}\nproviders: [{name: silent}]\n"
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	talk(t, dir, []string{"TMPDIR=" + dir, "XDG_RUNTIME_DIR=", "NOTIFY_SOCKET=" + manager.LocalAddr().String()},
		self, asAgent, "agent", "--dev", "--provider-dir", dir, "--config", "c.yaml")
	told := make([]byte, 100)
	_ = manager.SetReadDeadline(time.Now().Add(2 * time.Minute))
	n, err := manager.Read(told)
	if err != nil || string(told[:n]) != "READY=1" {
		t.Fatalf("it got %q, %v", told[:n], err)
	}
	n, err = manager.Read(told)
	if err != nil || string(told[:n]) != "STATUS=0 of 2 secrets held" {
		t.Fatalf("it got %q, %v", told[:n], err)
	}
	conn, err := net.Dial("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
