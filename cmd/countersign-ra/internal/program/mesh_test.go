package program

import (
	"crypto/x509"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/quorum"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// No owner of a namespace has a say in it.
func TestMeshHasATrustBundleInPlaceOfConfigMaps(t *testing.T) {
	for as, want := range map[string]quorum.Publisher{"config_map": quorum.MeshRoots, "cluster_trust_bundle": quorum.TrustBundles} {
		c, err := config.Parse("c.yaml", []byte(strings.Replace(brief, "roots: {enabled: true}", "roots: {enabled: true, as: "+as+"}", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := publishersOf(c)("vault"); !slices.Equal(got, []quorum.Publisher{want}) {
			t.Errorf("%s: %q publish the roots", as, got)
		}
		bundles := bundlesOf(c, nil)
		if len(bundles) > 0 != (want == quorum.TrustBundles) {
			t.Errorf("%s: %+v", as, bundles)
		}
		for _, b := range bundles {
			if b.Name != "istio.io:istiod-ca:root-cert" || b.Signer != "istio.io/istiod-ca" || b.Authority != "vault" {
				t.Errorf("%+v", b)
			}
		}
	}
}

// gathered are the values of roots that are left behind and of meshes, each by its name and labels.
func gathered(t *testing.T, from metrics.Source) map[string]float64 {
	t.Helper()
	from.Report = func() status.Report { return status.Report{} }
	m, all := metrics.New(), map[string]float64{}
	m.Watch(from)
	families, err := m.Registry.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), prefix)
		if !strings.HasPrefix(name, "mesh_") && !strings.HasPrefix(name, "istiod_") && name != "roots_left_behind" {
			continue
		}
		for _, one := range f.GetMetric() {
			key := name
			for _, label := range one.GetLabel() { // sorted by name
				key += " " + label.GetValue()
			}
			all[key] = one.GetGauge().GetValue()
		}
	}
	return all
}

func TestMetricsOfAMesh(t *testing.T) {
	m := &status.Mesh{Roots: &status.MeshRoots{Namespaces: 7, Lacking: 2, Disputed: 1, Left: []string{"shop"}}, Istiod: &status.Istiod{Error: "denied", NotAfter: time.Unix(60, 0)}}
	got := gathered(t, metrics.Source{
		Left:   func() []quorum.Place { return nil },
		Meshes: func() map[string]*status.Mesh { return map[string]*status.Mesh{"home": m} },
	})
	want := map[string]float64{
		"mesh_namespaces home current": 5, "mesh_namespaces home lacking": 2, "mesh_namespaces home disputed": 1,
		"mesh_left_behind home shop": 1, "istiod_certificate_current home": 0, "istiod_certificate_expiry_timestamp_seconds home": 60,
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
