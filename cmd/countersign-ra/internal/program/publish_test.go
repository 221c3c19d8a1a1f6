package program

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// bundleAt asks a bundle endpoint; nil if it has no bundle.
func bundleAt(address string) *spiffebundle.Bundle {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // #nosec G402 -- the test compares what is published
	answer, err := (&http.Client{Transport: transport, Timeout: patience}).Get("https://" + address)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return nil
	}
	bundle, err := spiffebundle.Parse(spiffeid.RequireTrustDomainFromString("cluster.local"), text)
	if err != nil {
		return nil
	}
	return bundle
}

// Two replicas publish the same bundle with the same number, also the one that does not lead, and a
// restart keeps it.
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
	one, two := begin(), begin()
	first := eventually(t, one)
	second := eventually(t, two)
	number, has := first.SequenceNumber()
	if len(first.X509Authorities()) != 1 || !first.Equal(second) || !has || number < 1_700_000_000 {
		t.Errorf("%v with %d, and %v", first, number, second)
	}
	again := eventually(t, begin())
	if !again.Equal(first) {
		t.Errorf("after a restart: %v, previously %v", again, first)
	}
}

// eventually waits for a bundle.
func eventually(t *testing.T, address string) *spiffebundle.Bundle {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		if bundle := bundleAt(address); bundle != nil {
			return bundle
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s publishes no bundle within %s", address, patience)
		}
	}
}
