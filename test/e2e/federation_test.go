package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/sdk/catest"
)

// go-spiffe has the bundle that go-spiffe publishes, beside two identities with hints. The roots
// outlive the endpoint and, by the kept state, the agent.
func TestGoSPIFFEHasTheBundleOfAnEndpoint(t *testing.T) {
	t.Parallel()
	partner := spiffeid.RequireTrustDomainFromString("partner.example")
	roots := catest.NewCA(catest.Options{}).Bundle().Certificates()
	bundle := spiffebundle.FromX509Authorities(partner, roots)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	mustDo(t, err)
	mustDo(t, bundle.AddJWTAuthority("one", key.Public()))
	handler, err := federation.NewHandler(partner, bundle)
	mustDo(t, err)
	endpoint := httptest.NewTLSServer(handler)
	defer endpoint.Close()
	dir := proctest.Folder(t)
	file := filepath.Join(dir, "web.pem")
	mustDo(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: endpoint.Certificate().Raw}), 0o600))
	socket := filepath.Join(dir, "spiffe")
	a := startAgent(t, agentConfig{
		selfSigned: true, state: true, endpoints: []map[string]any{{"trust_domain": partner.Name(), "url": endpoint.URL, "root_file": file}},
		workloadAPI: map[string]any{"socket": socket, "identities": []map[string]any{{"name": "client", "hint": "out"}, {"name": "default", "hint": "in"}}},
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := workloadapi.New(ctx, workloadapi.WithAddr("unix://"+socket))
	mustDo(t, err)
	defer client.Close()
	federated := func() {
		t.Helper()
		poll(t, "the foreign roots, beside two identities", func() bool {
			got, err := client.FetchX509Context(ctx)
			if err != nil || len(got.SVIDs) != 2 || got.SVIDs[0].Hint != "out" || got.SVIDs[1].Hint != "in" {
				return false
			}
			theirs, ok := got.Bundles.Get(partner)
			return ok && theirs.Equal(x509bundle.FromX509Authorities(partner, roots))
		})
	}
	federated()
	poll(t, "the foreign JWT keys", func() bool {
		got, err := client.FetchJWTBundles(ctx)
		if err != nil {
			return false
		}
		theirs, ok := got.Get(partner)
		return ok && theirs.HasJWTAuthority("one")
	})
	a.stop(t, syscall.SIGTERM)
	endpoint.Close()
	a.start(t)
	federated()
	poll(t, "the failure in /metrics", func() bool {
		return a.metric(t, "countersign_failures_total", `authority="bundle endpoint of partner.example"`, `reason="unavailable"`) >= 1
	})
}

// go-spiffe follows the bundle of an agent: over a changed root, and a restart.
func TestGoSPIFFEReadsTheAgentsBundle(t *testing.T) {
	t.Parallel()
	own, address := spiffeid.RequireTrustDomainFromString(trustDomain), net.JoinHostPort("127.0.0.1", proctest.FreePort(t))
	a := startAgent(t, agentConfig{
		state: true, publish: map[string]any{"address": address, "url": "https://" + trustDomain + "/bundle.json"},
		workloadAPI: map[string]any{"socket": filepath.Join(proctest.Folder(t), "spiffe")},
	})
	w := startWorkload(t, a.socket, "default")
	read := func(roots *x509bundle.Bundle) (got *spiffebundle.Bundle, err error) {
		return federation.FetchBundle(t.Context(), own, "https://"+address+"/bundle.json", federation.WithSPIFFEAuth(roots, spiffeid.RequireFromString(envoyID)))
	}
	trusted := x509bundle.FromX509Authorities(own, w.bundle().Certificates())
	var first *spiffebundle.Bundle
	poll(t, "the bundle", func() (ok bool) {
		var err error
		first, err = read(trusted)
		return err == nil
	})
	number, _ := first.SequenceNumber()
	if !first.X509Bundle().Equal(trusted) || number == 0 {
		t.Errorf("number %d with %d roots", number, len(first.X509Authorities()))
	}
	a.stop(t, syscall.SIGTERM)
	a.start(t)
	poll(t, "the same bundle after a restart", func() bool {
		again, err := read(trusted)
		return err == nil && again.Equal(first)
	})
	next, signs := a.announceRoot(t, w)
	poll(t, "the next root", func() bool {
		changed, err := read(trusted)
		if err != nil || len(changed.X509Authorities()) != w.bundle().Len() {
			return false
		}
		later, _ := changed.SequenceNumber()
		return later > number
	})
	signs()
	poll(t, "a server under the next root", func() bool {
		_, err := read(x509bundle.FromX509Authorities(own, next.Certificates()))
		return err == nil
	})
}
