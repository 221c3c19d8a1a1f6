package program

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/kubernetes/record"
)

// reader reads bundle endpoints.
type reader struct {
	*testing.T
	client *http.Client
}

// newReader returns one that trusts a certificate.
func newReader(t *testing.T, trusts *certtest.Pair) reader {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(trusts.Cert)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return reader{t, &http.Client{Transport: transport, Timeout: patience}}
}

// get returns the document at an address; none unless the status is 200.
func (r reader) get(address string) []byte {
	answer, err := r.client.Get("https://" + address)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return nil
	}
	return text
}

// bundle waits for a bundle, and reads it as go-spiffe does.
func (r reader) bundle(address string) *spiffebundle.Bundle {
	r.Helper()
	bundle, err := spiffebundle.Parse(spiffeid.RequireTrustDomainFromString("cluster.local"), r.eventually(address))
	if err != nil {
		r.Fatal(err)
	}
	return bundle
}

// publisher starts a replica with a bundle endpoint that shows leaf, and returns its address. All have
// the CA in a folder.
func publisher(t *testing.T, api *apiServer, ca string, leaf *certtest.Pair) (address string) {
	t.Helper()
	chain, key := leaf.Files(t)
	text := strings.ReplaceAll(usual, "DIR/ca", ca) + fmt.Sprintf("publish_bundle: {address: '127.0.0.1:0', profile: https_web, trust_domain: cluster.local, chain_file: %q, key_file: %q}\n", chain, key)
	r, listens := start(t, files(t, api, text)), regexp.MustCompile(`msg="bundle endpoint" address=(\S+)`)
	r.until(t, "it takes an address", func() bool {
		at := listens.FindStringSubmatch(r.Log.String())
		if at != nil {
			address = at[1]
		}
		return at != nil
	})
	return address
}

// Two replicas publish the same bundle with the same number, also the one that does not lead, and a
// restart keeps it.
func TestReplicasPublishOneBundle(t *testing.T) {
	t.Parallel()
	api, ca, leaf := newAPIServer(t), proctest.Folder(t), certtest.Loopback(t)
	r := newReader(t, leaf)
	one, two := publisher(t, api, ca, leaf), publisher(t, api, ca, leaf)
	first, second := r.bundle(one), r.bundle(two)
	number, has := first.SequenceNumber()
	if len(first.X509Authorities()) != 1 || !first.Equal(second) || !has || number < 1_700_000_000 {
		t.Errorf("%v with %d, and %v", first, number, second)
	}
	const ahead = 9_000_000_000 // of the clock
	changeRecord(t, api, fmt.Sprint(number), fmt.Sprint(ahead))
	again := r.bundle(publisher(t, api, ca, leaf))
	if n, _ := again.SequenceNumber(); n != ahead || !again.HasX509Authority(first.X509Authorities()[0]) {
		t.Errorf("after a restart the number is %d, want that of the record, %d", n, uint64(ahead))
	}
}

// changeRecord replaces a text in the record of the published bundle.
func changeRecord(t *testing.T, api *apiServer, before, after string) {
	t.Helper()
	kept := api.get("configmaps", "countersign", "countersign-ra-bundle")
	text := bundleRecordOf(api)
	if !strings.Contains(text, before) {
		t.Fatalf("the record of the bundle is %q, want %q in it", text, before)
	}
	kept.At("data").(map[string]any)[record.BundleKey] = strings.ReplaceAll(text, before, after)
	api.Put(kept)
}

func bundleRecordOf(api *apiServer) string {
	text, _ := api.get("configmaps", "countersign", "countersign-ra-bundle").At("data", record.BundleKey).(string)
	return text
}

// eventually waits for a document.
func (r reader) eventually(address string) (text []byte) {
	r.Helper()
	polling.Until(r, patience, address+" publishes a bundle", func() bool { text = r.get(address); return text != nil })
	return text
}
