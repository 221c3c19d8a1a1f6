package wiring

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
)

func TestPinnedRootsFromPipeAreRefusedAtOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Authority(config.Provider{Entry: pluginhost.Entry{Name: "file"}, Trust: config.Trust{PinnedRoots: pipe}}, nil, NewTokenCache(nil, silent))
	if err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
}
