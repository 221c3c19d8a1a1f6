//go:build e2e && istio && linux

package program

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
)

// TestRealIstioReadsThePublishedBundle has istiod's reader of caCertificates.spiffeBundleUrl follow a
// bundle endpoint to a second root, which another replica publishes.
func TestRealIstioReadsThePublishedBundle(t *testing.T) {
	t.Parallel()
	api, ca, leaf := newAPIServer(t), proctest.Folder(t), certtest.Loopback(t)
	address := publisher(t, api, ca, leaf)
	newReader(t, leaf).bundle(address) // so that Istio does not begin with errors
	istio := startBundleReader(t, "https://"+address, leaf)
	root, next := read(t, filepath.Join(ca, "ca-cert.pem")), string(certtest.Root(t).PEM())
	istio.awaits(t, root)
	another := strings.NewReplacer("\n", `\n`).Replace(`"roots":"` + next + root + `"`)
	changeRecord(t, api, recorded(t, api), another)
	istio.awaits(t, root, next)
}

// recorded is the content in the record of the published bundle.
func recorded(t *testing.T, api *apiServer) string {
	t.Helper()
	text := bundleRecordOf(api)
	begin, end := strings.Index(text, `"roots"`), strings.LastIndex(text, "}")
	if begin < 0 || end < begin {
		t.Fatalf("the record of the bundle is %q", text)
	}
	return text[begin:end]
}

// bundleReader is istiod's.
type bundleReader struct{ *proctest.Process }

// startBundleReader starts one that trusts a certificate.
func startBundleReader(t *testing.T, url string, trusts *certtest.Pair) bundleReader {
	t.Helper()
	dir := proctest.Folder(t)
	roots, _ := trusts.Files(t)
	cmd := exec.Command(programs.Foreign(t, "COUNTERSIGN_ISTIO"), "bundle")
	cmd.Dir = dir
	cmd.Env = append(proctest.Environ(dir), "BUNDLE_URL="+url, "SSL_CERT_FILE="+roots, "SSL_CERT_DIR="+dir)
	return bundleReader{proctest.Start(t, cmd)}
}

// awaits waits until these are the trust anchors.
func (b bundleReader) awaits(t *testing.T, roots ...string) {
	t.Helper()
	b.Until(t, patience, "istiod has the roots", func() bool {
		return slices.ContainsFunc(b.anchors(), func(anchors []string) bool {
			return len(anchors) == len(roots) && !slices.ContainsFunc(roots, func(root string) bool { return !slices.Contains(anchors, root) })
		})
	})
}

// anchors are those of each line about them.
func (b bundleReader) anchors() (all [][]string) {
	for line := range strings.Lines(b.Log.String()) {
		var said struct {
			Anchors []string `json:"anchors"`
		}
		if _, text, found := strings.Cut(line, `{"anchors":`); found && json.Unmarshal([]byte(`{"anchors":`+text), &said) == nil {
			all = append(all, said.Anchors)
		}
	}
	return all
}
