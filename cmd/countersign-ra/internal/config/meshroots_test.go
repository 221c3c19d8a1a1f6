package config

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls/istiod"
	"github.com/countersign-dev/countersign/ra"
)

func TestMeshHasDefaults(t *testing.T) {
	c, err := Parse("c.yaml", []byte(working+"mesh: {roots: {enabled: true}, istiod: {enabled: true, revisions: [canary]}}"))
	if err != nil {
		t.Fatal(err)
	}
	r, i := c.Mesh.Roots, c.Mesh.Istiod
	if r.Authority != "vault" || !c.Mesh.Publishes("vault") || c.Mesh.Publishes("step") || c.Mesh.Further() != nil {
		t.Errorf("%+v", r)
	}
	for name, chosen := range map[string]bool{"shop": true, "istio-system": true, "kube-system": false, "kube-public": false} {
		if r.Selector().Matches(labels.Set{"kubernetes.io/metadata.name": name}) != chosen {
			t.Errorf("%s is chosen: %t", name, !chosen)
		}
	}
	if i.Authority != "vault" || i.Namespace != "istio-system" || i.TTL.Duration != 24*time.Hour || len(i.Clusters) != 1 || i.Clusters[0] != "Kubernetes" {
		t.Errorf("%+v", i)
	}
}

func TestMeshHasOneTrustBundleInPlaceOfConfigMaps(t *testing.T) {
	c, err := Parse("c.yaml", []byte(working+"mesh: {roots: {enabled: true, as: cluster_trust_bundle}}"))
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Mesh.Roots; r.As != AsTrustBundle || r.Namespaces != "" || !c.Mesh.Publishes("vault") {
		t.Errorf("%+v", r)
	}
	for text, want := range map[string]string{
		"mesh: {roots: {enabled: true, as: secret}}":                                        "write config_map or cluster_trust_bundle",
		"mesh: {roots: {enabled: true, as: cluster_trust_bundle, namespaces: team in (a)}}": "one object for all namespaces",
		"mesh: {roots: {as: cluster_trust_bundle}}":                                         "have no effect",
	} {
		if _, err := Parse("c.yaml", []byte(working+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The rule for istiod is for its own door alone, and that door has no other rule.
func TestRuleOfIstiodGrantsItsNamesAndNothingElse(t *testing.T) {
	c, err := Parse("c.yaml", []byte(working+"mesh: {istiod: {enabled: true, namespace: mesh, dns_names: [istiod.example.org]}}"))
	if err != nil {
		t.Fatal(err)
	}
	d := c.Policy().Try(istiod.Subject("Kubernetes", "mesh"), istiod.Door)
	if d.Denied != "" || d.Identity.SPIFFEID != nil || strings.Join(d.Identity.DNSNames, " ") != "istio-pilot.mesh.svc istiod-remote.mesh.svc istiod.example.org istiod.mesh.svc" {
		t.Errorf("%+v", d)
	}
	for what, d := range map[string]ra.Decision{
		"a pod at istiod's door":    c.Policy().Try(pod("Kubernetes"), istiod.Door),
		"istiod at the pods' door":  c.Policy().Try(istiod.Subject("Kubernetes", "mesh"), c.Door("example.com/mesh", PodCertificateRequests)),
		"istiod of another cluster": c.Policy().Try(istiod.Subject("east", "mesh"), istiod.Door),
	} {
		if d.Denied == "" && len(d.Identity.DNSNames) > 0 {
			t.Errorf("%s is granted %s", what, d.Identity)
		}
	}
}

func TestFurtherRootsAreRead(t *testing.T) {
	root := certtest.Root(t)
	file := filepath.Join(t.TempDir(), "old.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Parse("c.yaml", []byte(working+"mesh: {roots: {enabled: true, further_file: "+file+"}}"))
	if err != nil || !c.Mesh.Further().Contains(root.Cert) {
		t.Errorf("%v, %v", c.Mesh.Further().Fingerprints(), err)
	}
}

func TestWrongMeshIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"roots: {namespaces: a}":                          `mesh.roots.enabled is "false": its other settings have no effect`,
		"istiod: {namespace: a}":                          `mesh.istiod.enabled is "false": its other settings have no effect`,
		"roots: {enabled: true, authority: step}":         `mesh.roots.authority is "step": configured providers are vault`,
		"istiod: {enabled: true, authority: step}":        `mesh.istiod.authority is "step": configured providers are vault`,
		"roots: {enabled: true, namespaces: 'a b'}":       `mesh.roots.namespaces is "a b": write a selector of labels`,
		"roots: {enabled: true, further_file: /none}":     `mesh.roots.further_file: `,
		"istiod: {enabled: true, namespace: A}":           `mesh.istiod.namespace is "A": write a namespace`,
		"istiod: {enabled: true, clusters: ['a b']}":      `mesh.istiod.clusters.0 is "a b": write a cluster ID`,
		"istiod: {enabled: true, ttl: 1s}":                `mesh.istiod.ttl is "1s": write 1m or more`,
		"istiod: {enabled: true, dns_names: ['a b']}":     `mesh.istiod: DNS name "a b" is not valid`,
		"istiod: {enabled: true, dns_names: ['{pod}.x']}": `mesh.istiod: DNS name "{pod}.x" is not valid`,
		"istiod: {enabled: true}}\nrules: [{name: istiod-tls, " + `names: {spiffe_id: "spiffe://a/{pod}"}}]` + "\nlog: {level: info": `another rule has the same name`,
	} {
		_, err := Parse("c.yaml", []byte(spoiled("mesh: {"+text+"}")))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
}
