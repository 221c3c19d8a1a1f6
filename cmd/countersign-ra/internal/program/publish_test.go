package program

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/kubernetes/record"
)

// reader reads bundle endpoints as two others do.
type reader struct {
	*testing.T
	client *http.Client
}

// newReader returns one that trusts a certificate. TLS is as in Istio's RetrieveSpiffeBundleRootCerts.
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

// ofIstio reads a bundle by the rules of Istio's RetrieveSpiffeBundleRootCerts (istio.io/istio/pkg/spiffe),
// which istiod has for caCertificates.spiffeBundleUrl.
func (r reader) ofIstio(address string) (roots []*x509.Certificate) {
	r.Helper()
	var document struct {
		jose.JSONWebKeySet
		Sequence    uint64 `json:"spiffe_sequence,omitempty"`
		RefreshHint int    `json:"spiffe_refresh_hint,omitempty"`
	}
	if err := json.NewDecoder(bytes.NewReader(r.eventually(address))).Decode(&document); err != nil {
		r.Fatal(err)
	}
	for i, key := range document.Keys {
		if key.Use != "x509-svid" {
			continue
		}
		if len(key.Certificates) != 1 {
			r.Fatalf("entry %d has %d certificates, want 1", i, len(key.Certificates))
		}
		roots = append(roots, key.Certificates[0])
	}
	return roots
}

// Two replicas publish the same bundle with the same number, also the one that does not lead, and a
// restart keeps it. Istio accepts it.
func TestReplicasPublishOneBundle(t *testing.T) {
	t.Parallel()
	api := newAPIServer(t)
	leaf := certtest.Loopback(t)
	chain, key := leaf.Files(t)
	ca := proctest.Folder(t) // all have one CA
	begin := func() string {
		address := proctest.FreeAddress(t)
		text := strings.ReplaceAll(usual, "DIR/ca", ca) + fmt.Sprintf("publish_bundle: {address: %q, profile: https_web, trust_domain: cluster.local, chain_file: %q, key_file: %q}\n", address, chain, key)
		start(t, files(t, api, text))
		return address
	}
	r := newReader(t, leaf)
	one, two := begin(), begin()
	first, second := r.bundle(one), r.bundle(two)
	number, has := first.SequenceNumber()
	if len(first.X509Authorities()) != 1 || !first.Equal(second) || !has || number < 1_700_000_000 {
		t.Errorf("%v with %d, and %v", first, number, second)
	}
	const ahead = 9_000_000_000 // of the clock
	setNumber(t, api, number, ahead)
	again := r.bundle(begin())
	if n, _ := again.SequenceNumber(); n != ahead || !again.HasX509Authority(first.X509Authorities()[0]) {
		t.Errorf("after a restart the number is %d, want that of the record, %d", n, uint64(ahead))
	}
	if roots := r.ofIstio(one); len(roots) != 1 || !first.HasX509Authority(roots[0]) {
		t.Errorf("Istio reads %d roots, want that of the bundle", len(roots))
	}
}

// setNumber replaces the number in the record of the published bundle.
func setNumber(t *testing.T, api *apiServer, before, after uint64) {
	t.Helper()
	kept := api.get("configmaps", "countersign", "countersign-ra")
	data, _ := kept.At("data").(map[string]any)
	text, _ := data[record.BundleNumberKey].(string)
	if !strings.Contains(text, fmt.Sprint(before)) {
		t.Fatalf("the record of the number is %q, want %d", text, before)
	}
	data[record.BundleNumberKey] = strings.ReplaceAll(text, fmt.Sprint(before), fmt.Sprint(after))
	api.Put(kept)
}

// eventually waits for a document.
func (r reader) eventually(address string) []byte {
	r.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		if text := r.get(address); text != nil {
			return text
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			r.Fatalf("%s publishes no bundle within %s", address, patience)
		}
	}
}
