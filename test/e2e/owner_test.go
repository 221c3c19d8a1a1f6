package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// An agent without rights cannot make files root's: what is there stays, and it says so
// where an operator looks.
func TestImpossibleOwnerIsReportedCountedAndRetried(t *testing.T) {
	t.Parallel()
	folder := proctest.Folder(t)
	old := map[string]string{"cert-chain.pem": "the old chain", "key.pem": "the old key", "root-cert.pem": "the old roots"}
	for name, content := range old {
		writeWhole(t, filepath.Join(folder, name), []byte(content))
	}
	giveTo(t, ordinary(), folder)
	a := startAgent(t, agentConfig{user: ordinary(), outputs: []map[string]any{{"name": "rooted", "folder": folder, "owner": "root"}}})
	a.log.await(t, "cannot write files, keeping the existing ones", "change the file's owner to user 0")
	poll(t, "the second try in /metrics", func() bool {
		return a.metric(t, "countersign_output_events_total", `output="rooted"`, `event="write-failed"`) >= 2
	})
	for name, content := range old {
		if got := readText(t, filepath.Join(folder, name)); got != content {
			t.Errorf("%s is another than before", name)
		}
	}
	// All else goes on.
	startWorkload(t, a.socket, "default")
}

func TestRootAgentWritesForOtherUserAndGroup(t *testing.T) {
	t.Parallel()
	folder, uid, gid := proctest.Folder(t), os.Getuid(), os.Getgid()
	if reader := ordinary(); reader != nil {
		uid, gid = int(reader.Uid), int(reader.Gid)-1
	}
	a := startAgent(t, agentConfig{outputs: []map[string]any{{
		"name": "theirs", "folder": folder, "link": "current", "owner": fmt.Sprint(uid), "group": fmt.Sprint(gid),
		"files": []map[string]any{{"name": "key.pem", "content": "key", "mode": "0640"}, {"name": "both.pem", "content": "combined"}, {"name": "roots.jks", "content": "jks-truststore"}},
	}}})
	for range 2 { // each set of files
		before := a.metric(t, "countersign_output_events_total", `event="written"`)
		poll(t, "files to be written", func() bool { return a.metric(t, "countersign_output_events_total", `event="written"`) > before })
		set, err := filepath.EvalSymlinks(filepath.Join(folder, "current"))
		mustDo(t, err)
		for name, mode := range map[string]os.FileMode{"key.pem": 0o640, "both.pem": 0o600, "roots.jks": 0o644} {
			mustBelongTo(t, filepath.Join(set, name), uid, gid, mode)
		}
	}
}

func mustBelongTo(t *testing.T, path string, uid, gid int, mode os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	mustDo(t, err)
	if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != uid || int(owner.Gid) != gid || info.Mode() != mode {
		t.Errorf("%s is of user %d and group %d, %s; want %d, %d, %s", filepath.Base(path), owner.Uid, owner.Gid, info.Mode(), uid, gid, mode)
	}
}
