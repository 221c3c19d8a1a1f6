package program

import (
	"crypto/x509"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// No owner of a namespace has a say in it.
func TestMeshHasATrustBundleInPlaceOfConfigMaps(t *testing.T) {
	for as, want := range map[string]publisher{"config_map": meshRoots, "cluster_trust_bundle": trustBundles} {
		c, err := config.Parse("c.yaml", []byte(strings.Replace(brief, "roots: {enabled: true}", "roots: {enabled: true, as: "+as+"}", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := publishersOf(c)("vault"); !slices.Equal(got, []publisher{want}) {
			t.Errorf("%s: %q publish the roots", as, got)
		}
		bundles := bundlesOf(c)
		if len(bundles) > 0 != (want == trustBundles) {
			t.Errorf("%s: %+v", as, bundles)
		}
		for _, b := range bundles {
			if b.Name != "istio.io:istiod-ca:root-cert" || b.Signer != "istio.io/istiod-ca" || b.Authority != "vault" {
				t.Errorf("%+v", b)
			}
		}
	}
}

func TestMetricsOfAMesh(t *testing.T) {
	got := map[string]float64{}
	m := &status.Mesh{Roots: &status.MeshRoots{Namespaces: 7, Lacking: 2, Disputed: 1, Left: []string{"shop"}}, Istiod: &status.Istiod{Error: "denied", NotAfter: time.Unix(60, 0)}}
	gaugeMesh("home", m, func(d *prometheus.Desc, v float64, labels ...string) {
		if labels[0] != "home" {
			t.Errorf("labels %q", labels)
		}
		got[d.String()+strings.Join(labels[1:], "")] = v
	})
	want := map[string]float64{
		meshNamespacesDesc.String() + "current": 5, meshNamespacesDesc.String() + "lacking": 2, meshNamespacesDesc.String() + "disputed": 1,
		meshLeftDesc.String() + "shop": 1, istiodCurrentDesc.String(): 0, istiodExpiryDesc.String(): 60,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// The rule for istiod comes with the rules, and what is asked for does not.
func TestChangedIstiodNeedsARestart(t *testing.T) {
	parsed := func(mesh string) *config.Config {
		c, err := config.Parse("c.yaml", []byte(usual+mesh))
		if err != nil {
			t.Fatal(err)
		}
		return &c
	}
	const istiod = "mesh: {istiod: {enabled: true, dns_names: [a.example.org]}}\n"
	s := &service{config: *parsed(istiod)}
	if err := s.foreign(parsed(istiod + "log: {level: debug}\n")); err != nil {
		t.Error(err)
	}
	for what, next := range map[string]string{"another name": strings.Replace(istiod, "a.example.org", "b.example.org", 1), "none": ""} {
		if err := s.foreign(parsed(next)); err == nil || !strings.Contains(err.Error(), "mesh.istiod has changed") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Proxies that hold a certificate of the new CA talk to those that still have one of the old CA.
func TestRepliesHaveTheFurtherRootsOfTheMesh(t *testing.T) {
	t.Parallel()
	next, old := certtest.Root(t).Cert, certtest.Root(t).Cert
	file := filepath.Join(t.TempDir(), "old.pem")
	write(t, file, string(pki.EncodeCertificates([]*x509.Certificate{old})))
	c, err := config.Parse("ra.yaml", []byte(strings.ReplaceAll(forMesh, "DIR", t.TempDir())+"mesh: {roots: {enabled: true, further_file: "+file+"}}"))
	if err != nil {
		t.Fatal(err)
	}
	for authority, want := range map[string]*pki.Bundle{"file": pki.NewBundle(next, old), "another": pki.NewBundle(next)} {
		d := &door{of: &service{config: c}}
		if cert := d.withFurtherRoots(ra.Certificate{Authority: authority, Roots: pki.NewBundle(next)}); !cert.Roots.Equal(want) {
			t.Errorf("%s: roots %q", authority, cert.Roots.Fingerprints())
		}
	}
}
