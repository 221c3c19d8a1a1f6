package e2e

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/fatal"
)

// A flood of connections leaves the agent the descriptors that it needs to restart a
// provider and to renew, and connections that close make room again.
func TestConnectionFloodLeavesDescriptorsForAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{descriptors: 128})
	w := startWorkload(t, a.socket, "default")
	var flood []net.Conn
	for range 200 {
		conn, err := net.DialTimeout("unix", a.socket, time.Second)
		if err != nil {
			break // the backlog is full
		}
		flood = append(flood, conn)
	}
	a.log.await(t, "connection refused: too many are open", "of_this_process=")
	syscall.Kill(a.provider(t, 0), syscall.SIGKILL)
	a.log.await(t, "provider state changed", "generation=2", "state=ready")
	held := w.certificate()
	w.await(t, "the next certificate", func() bool { return !w.pair.Leaf.Equal(held.Leaf) })
	for _, conn := range flood {
		conn.Close()
	}
	startWorkload(t, a.socket, "default").certificate()
	if w.streams != 1 {
		t.Errorf("there were %d streams", w.streams)
	}
	if strings.Contains(a.log.String(), "too many open files") {
		t.Error("the agent ran out of descriptors")
	}
}

func TestRestartStormLeavesOneAgentAndOneProvider(t *testing.T) {
	t.Parallel()
	a := startAgent(t, agentConfig{})
	w := startWorkload(t, a.socket, "client")
	var last int
	for range 8 {
		last = a.provider(t, 0)
		a.stop(t, syscall.SIGKILL)
		a.start(t)
	}
	poll(t, "the last killed agent's provider to be gone", func() bool { return !alive(last) })
	held := w.certificate()
	w.await(t, "the new agent's certificate", func() bool { return !w.pair.Leaf.Equal(held.Leaf) })
	a.provider(t, 0)
	a.stop(t, syscall.SIGTERM)
	if found := entries(t, a.runtimeDir()); len(found) > 0 {
		t.Errorf("left: %v", found)
	}
}

// fails starts the agent where it cannot start, and returns what it says.
func (a *agent) fails(t *testing.T, config string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(a.bin, "countersign"), "agent", "--config", config)
	cmd.Dir = a.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinary(), Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
		t.Errorf("it ended with %v", err)
	}
	return string(out)
}

func TestUnwritableFolderIsOneSentence(t *testing.T) {
	t.Parallel()
	a := prepareAgent(t, agentConfig{user: ordinary()})
	mustDo(t, os.Chmod(filepath.Dir(a.socket), 0o500))
	if said := a.fails(t, a.config()); !strings.Contains(said, a.socket) || !strings.Contains(said, "permission denied") {
		t.Error(said)
	}
}

func TestFullDiskIsOneSentence(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("making a small disk needs root")
	}
	a := prepareAgent(t, agentConfig{user: ordinary()})
	disk := filepath.Dir(a.socket)
	mustDo(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,nr_inodes=2,mode=0777"))
	t.Cleanup(func() { mustDo(t, syscall.Unmount(disk, 0)) })
	mustDo(t, os.WriteFile(filepath.Join(disk, "full"), nil, 0o600))
	if said := a.fails(t, a.config()); !strings.Contains(said, a.socket) || !strings.Contains(said, "no space left") {
		t.Error(said)
	}
}

var mustDo = fatal.If
