package e2e

import (
	"crypto/tls"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// The agent says that its files fall behind, keeps the ones that are there, and goes on by itself
// when there is room.
func TestFullDiskIsReportedAndOvercome(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("making a small disk needs root")
	}
	disk := proctest.Folder(t)
	mustDo(t, syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k,mode=0700"))
	t.Cleanup(func() { mustDo(t, syscall.Unmount(disk, syscall.MNT_DETACH)) })
	a := startAgent(t, agentConfig{outputs: []map[string]any{{"name": "web", "folder": disk, "reload": map[string]any{"command": []string{"/bin/true"}}}}})
	serial := func() string {
		pair, err := tls.LoadX509KeyPair(filepath.Join(disk, "cert-chain.pem"), filepath.Join(disk, "key.pem"))
		if err != nil {
			return ""
		}
		return pair.Leaf.SerialNumber.String()
	}
	poll(t, "the files", func() bool { return serial() != "" && strings.HasPrefix(getPage(t, a.status, "/readyz"), "ok\n") })

	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	poll(t, "the failure in /status", func() bool { return a.outputIs(t, "not-written", "no space left") })
	if got := getPage(t, a.status, "/readyz"); !strings.Contains(got, "Files are behind: web") {
		t.Errorf("/readyz says %q", got)
	}
	if got := getPage(t, a.status, "/"); !strings.Contains(got, "Files are behind: web") {
		t.Error("the page does not say that files are behind")
	}
	if got := a.metric(t, "countersign_output_behind", `output="web"`, `step="write"`); got != 1 {
		t.Errorf("countersign_output_behind is %v", got)
	}
	held := serial()
	if held == "" {
		t.Error("the files of before are no pair anymore")
	}

	mustDo(t, os.Remove(ballast))
	poll(t, "files of a later certificate", func() bool { return a.outputIs(t, "current", "") && serial() != "" && serial() != held })
	poll(t, "an agent that is well", func() bool { return getPage(t, a.status, "/readyz") == "ok\n" })
}

// fill writes until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4096))
	}
}

// outputIs reports whether the agent's one output is in that state, for that reason.
func (a *agent) outputIs(t *testing.T, state, why string) bool {
	t.Helper()
	var report struct {
		Outputs []struct {
			State   string
			Failure struct{ Text string }
		}
	}
	if json.Unmarshal([]byte(getPage(t, a.status, "/status")), &report) != nil || len(report.Outputs) != 1 {
		return false
	}
	return report.Outputs[0].State == state && strings.Contains(report.Outputs[0].Failure.Text, why)
}
