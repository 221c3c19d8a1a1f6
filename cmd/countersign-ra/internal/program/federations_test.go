package program

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// partner is the bundle endpoint of a foreign trust domain, whose server has a SPIFFE ID there.
type partner struct {
	*httptest.Server
	t      *testing.T
	bundle *spiffebundle.Bundle
	leaf   atomic.Pointer[tls.Certificate]
}

func newPartner(t *testing.T) *partner {
	t.Helper()
	domain := spiffeid.RequireTrustDomainFromString("partner.example")
	p := &partner{t: t, bundle: spiffebundle.New(domain)}
	handler, err := federation.NewHandler(domain, p.bundle)
	if err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewUnstartedServer(handler)
	p.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*p.leaf.Load()}}, nil // httptest has a certificate of its own
	}}
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	return p
}

// moves has it publish these roots, and its server present a certificate below the first.
func (p *partner) moves(roots ...*certtest.Pair) {
	p.t.Helper()
	for _, c := range p.bundle.X509Authorities() {
		p.bundle.RemoveX509Authority(c)
	}
	for _, root := range roots {
		p.bundle.AddX509Authority(root.Cert)
	}
	p.leaf.Store(roots[0].Leaf(p.t, time.Hour, "spiffe://partner.example/bundles").TLS())
}

const (
	federated = `  trust_bundle:
    name: "example.com:mesh:bundle"
    labels: {k8s.spiffe.io/canarying: live, k8s.spiffe.io/workload-trust-domain: cluster.local, k8s.spiffe.io/peer-trust-domain: cluster.local}
    bundle_endpoints: `
	foreignBundle = bundleName + ".partner.example"
)

// A leader that follows another one verifies the endpoint by the roots in the object, though all others
// have been replaced since; while the endpoint is away they stay; and the object goes with its setting.
func TestFederatedRootsArePublished(t *testing.T) {
	t.Parallel()
	api, p := newAPIServer(t), newPartner(t)
	first, second, third := certtest.Root(t), certtest.Root(t), certtest.Root(t)
	p.moves(first)
	p.StartTLS()
	defer p.Close()
	ca, initial := t.TempDir(), filepath.Join(t.TempDir(), "initial.pem")
	write(t, initial, string(first.PEM()))
	begin := func(endpoints string) *replica {
		t.Helper()
		text := strings.Replace(strings.ReplaceAll(usual, "DIR/ca", ca), `  trust_bundle: {name: "example.com:mesh:bundle"}`+"\n", federated+endpoints+"\n", 1)
		return start(t, files(t, api, text))
	}
	follows := fmt.Sprintf("[{trust_domain: partner.example, url: %q, server_id: 'spiffe://partner.example/bundles', initial_file: %q}]", p.URL, initial)
	has := func(r *replica, roots ...*certtest.Pair) {
		t.Helper()
		want := ""
		for _, root := range roots {
			want += string(root.PEM())
		}
		r.until(t, "the object has the roots of the partner", func() bool {
			o := api.get("clustertrustbundles", "", foreignBundle)
			text, _ := o.At("spec", "trustBundle").(string)
			return len(text) == len(want) && sameBlocks(text, want) && o.At("metadata", "labels", "k8s.spiffe.io/peer-trust-domain") == "partner.example"
		})
	}

	r := begin(follows)
	has(r, first)
	r.measures(t, fmt.Sprintf("countersign_ra_trust_bundle_current{cluster=\"Kubernetes\",signer=%q,trust_domain=\"partner.example\"} 1", signer))
	r.Stop(syscall.SIGTERM)

	o := api.get("clustertrustbundles", "", foreignBundle) // another leader has seen the second root
	o["spec"].(map[string]any)["trustBundle"] = string(second.PEM())
	api.Put(o)
	p.moves(second, third)
	r = begin(follows)
	has(r, second, third)
	r.Stop(syscall.SIGTERM)

	p.Close()
	r = begin(follows)
	r.measures(t, fmt.Sprintf("countersign_ra_trust_bundle_current{cluster=\"Kubernetes\",signer=%q,trust_domain=\"partner.example\"} 0", signer))
	has(r, second, third)
	r.until(t, "the replica is ready, whatever the foreign trust domain does", func() bool { return r.readyz() == 200 })
	r.Stop(syscall.SIGTERM)

	r = begin("[]")
	r.until(t, "the object goes", func() bool { return api.get("clustertrustbundles", "", foreignBundle) == nil })
	if api.get("clustertrustbundles", "", bundleName) == nil {
		t.Error("the signer's own object is gone, too")
	}
}

// sameBlocks compares two texts of PEM blocks in any order.
func sameBlocks(a, b string) bool {
	for block := range strings.SplitAfterSeq(a, "-----END CERTIFICATE-----\n") {
		if !strings.Contains(b, block) {
			return false
		}
	}
	return true
}
