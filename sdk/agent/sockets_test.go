package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// A cleaner of /tmp takes files that are older than a day, sockets among them.
func TestEachSocketComesBack(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	cfg := withGateway(config(t, catest.NewCA(catest.Options{})))
	cfg.WorkloadAPI.Path = filepath.Join(filepath.Dir(cfg.Socket.Path), "spiffe")
	a := run(t, cfg)
	fetch(t, cfg.Socket.Path, "default")
	// A file that another program has put there stays, and is reported.
	paths := []string{cfg.Socket.Path, cfg.WorkloadAPI.Path, cfg.Gateway.Socket.Path}
	for _, path := range paths {
		must(t, errors.Join(os.WriteFile(path+"-new", nil, 0o600), os.Rename(path+"-new", path)))
	}
	for _, path := range paths {
		polling.Until(t, patience, path+" is reported", func() bool {
			err := a.SocketErr()
			return err != nil && strings.Contains(err.Error(), path)
		})
		must(t, os.Remove(path))
	}
	polling.Until(t, patience, "all are back", func() bool { return a.SocketErr() == nil })
	fetch(t, cfg.Socket.Path, "default")
	fetchSVID(t, cfg.WorkloadAPI.Path)
}
