//go:build e2e && linux

package ingress_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// patience is for a busy machine: nothing here takes longer than 20 s by itself.
const patience = 2 * time.Minute

func startProcess(t *testing.T, path string, args ...string) *proctest.Process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Dir = proctest.Folder(t)
	cmd.Env = append(proctest.Environ(cmd.Dir), "COUNTERSIGN_PROVIDER_PATH="+binaries(t))
	return proctest.Start(t, cmd)
}

// poll waits for what tells nobody that it changed.
func poll(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline, tick := time.NewTimer(patience), time.NewTicker(20*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// page is what a program says on its socket, "" while it does not.
func page(socket, path string) string {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://localhost" + path)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path+".new", content, 0o600))
	must(t, os.Rename(path+".new", path))
}

var must = fatal.If
