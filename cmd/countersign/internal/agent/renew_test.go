package agent

import (
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/host/unixsocket"
	"github.com/countersign-dev/countersign/internal/program/operatorpage"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/transport"
	"github.com/countersign-dev/countersign/sdk/unixpeer"
)

// Only a peer that the kernel names can renew, and no provider.
func TestRenewalIsRefusedToProvidersAndOverTCP(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:0": "over a Unix socket alone",
		"unix:" + filepath.Join(proctest.Folder(t), "page"): "a provider",
	} {
		var log logtest.Log
		page, err := operatorpage.Listen(address, true, log.Logger())
		if err != nil {
			t.Fatal(err)
		}
		defer page.Close() //nolint:errcheck // nothing is lost
		page.Show(renewal(nil, func(unixpeer.Peer) error { return errors.New("a provider") }, log.Logger()))
		if !strings.HasPrefix(address, "unix:") {
			_, address, _ = strings.Cut(strings.TrimSpace(log.String()), "address=")
		}
		at, err := unixsocket.ParseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: transport.Local(at)}
		answer, err := client.Post("http://localhost/renew?secret=default", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		client.CloseIdleConnections()
		if answer.StatusCode != http.StatusForbidden || !strings.Contains(string(said), want) || !strings.Contains(log.String(), "refused to renew") {
			t.Errorf("%s: got %s, %s; logged %s", address, answer.Status, said, log.String())
		}
	}
}
