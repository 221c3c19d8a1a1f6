package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/settings"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls/istiod"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Mesh is what a mesh of Istio needs in its clusters beside certificates, where istiod's own CA
// is off. The replica that leads writes it.
type Mesh struct {
	Roots  MeshRoots `json:"roots"`
	Istiod Istiod    `json:"istiod"`

	further *pki.Bundle
}

// MeshRoots is the ConfigMap istio-ca-root-cert, in namespaces of all clusters, or one
// ClusterTrustBundle in each cluster.
type MeshRoots struct {
	// Enabled writes it. Default: false.
	Enabled bool `json:"enabled"`
	// As is config_map, or cluster_trust_bundle where istiod has
	// ENABLE_CLUSTER_TRUST_BUNDLE_API: pods then mount the ClusterTrustBundle
	// istio.io:istiod-ca:root-cert, which no owner of a namespace can change. Default:
	// config_map.
	As string `json:"as"`
	// Authority has the roots. Default: default_provider, or the only provider.
	Authority string `json:"authority"`
	// Namespaces is a selector of their labels, as kubectl takes it. Default:
	// kubernetes.io/metadata.name notin (kube-node-lease,kube-public,kube-system).
	Namespaces string `json:"namespaces"`
	// FurtherFile has roots (PEM) to publish beside those of the authority, such as those of
	// the CA that the mesh had before. Default: none.
	FurtherFile string `json:"further_file"`
	// Adopt takes over objects that another client has made. Default: false, they are left
	// alone, and no new root counts as published.
	Adopt bool `json:"adopt"`
}

// Istiod is the Secret istiod-tls, with which istiod serves.
type Istiod struct {
	// Enabled makes and renews it. Default: false.
	Enabled bool `json:"enabled"`
	// Authority signs it. Default: default_provider, or the only provider.
	Authority string `json:"authority"`
	// Namespace is istiod's. Default: istio-system.
	Namespace string `json:"namespace"`
	// Revisions are those of istiod, for the names istiod-REVISION. Default: none but default.
	Revisions []string `json:"revisions"`
	// DNSNames are further names of istiod. Default: none.
	DNSNames []string `json:"dns_names"`
	// TTL is the lifetime, what the authority backdates included. Default: 24h.
	TTL agent.Duration `json:"ttl"`
	// Clusters are the IDs of those with an istiod. Default: the home cluster.
	Clusters []string `json:"clusters"`
	// Adopt takes over a Secret that somebody else has made. Default: false, it is left alone.
	Adopt bool `json:"adopt"`
}

const (
	usualNamespaces = "kubernetes.io/metadata.name notin (kube-node-lease,kube-public,kube-system)"
	usualSystem     = "istio-system"
)

// What mesh.roots.as may be.
const (
	AsConfigMap   = "config_map"
	AsTrustBundle = "cluster_trust_bundle"
)

// The ClusterTrustBundle of a mesh, as Istio's charts mount it, and its signer.
const (
	MeshBundle = "istio.io:istiod-ca:root-cert"
	MeshSigner = "istio.io/istiod-ca"
)

// Enabled reports whether there is anything to write.
func (m Mesh) Enabled() bool { return m.Roots.Enabled || m.Istiod.Enabled }

// Publishes reports whether an authority's roots are published in the mesh, whose members learn of
// a new one only with their next certificate.
func (m Mesh) Publishes(authority string) bool {
	return m.Roots.Enabled && m.Roots.Authority == authority
}

// Further returns the roots of further_file.
func (m Mesh) Further() *pki.Bundle { return m.further }

// Selector returns the chosen namespaces of a valid configuration.
func (r MeshRoots) Selector() labels.Selector {
	selector, _ := labels.Parse(r.Namespaces) // it was checked
	return selector
}

// Names returns the names of istiod's certificate.
func (i Istiod) Names() []string {
	return slices.Concat(istiod.Names(i.Namespace, i.Revisions...), i.DNSNames)
}

// meshDoors returns the engine's doors for the mesh.
func (c *Config) meshDoors() []ra.Door {
	if !c.Mesh.Istiod.Enabled {
		return nil
	}
	return []ra.Door{{Name: istiod.Door}}
}

// meshRules returns the rules for these doors. No other rule is for them, as each rule names its
// doors.
func (c *Config) meshRules() []ra.Rule {
	i := c.Mesh.Istiod
	if !i.Enabled {
		return nil
	}
	return []ra.Rule{istiod.Rule(i.Authority, i.Namespace, i.Clusters, i.Names(), i.TTL.Duration)}
}

func (c *Config) checkMesh(p *settings.Problems) {
	c.checkMeshRoots(p, &c.Mesh.Roots)
	c.checkIstiod(p, &c.Mesh.Istiod)
}

// off reports whether a part is not enabled, and says so if it has other settings.
func off(p *settings.Problems, path string, enabled bool, part any) bool {
	if !enabled && !reflect.ValueOf(part).IsZero() {
		p.Say(path+".enabled", false, "its other settings have no effect; set this to true, or remove them")
	}
	return !enabled
}

func (c *Config) checkMeshRoots(p *settings.Problems, r *MeshRoots) {
	const path = "mesh.roots"
	if off(p, path, r.Enabled, *r) {
		return
	}
	c.settle(p, path+".authority", &r.Authority)
	c.checkAs(p, path, r)
	if _, err := labels.Parse(r.Namespaces); err != nil {
		p.Say(path+".namespaces", r.Namespaces, "write a selector of labels, such as istio-injection=enabled or team in (a,b)")
	}
	if r.FurtherFile == "" {
		return
	}
	text, err := settings.ReadFile(r.FurtherFile)
	if err == nil {
		c.Mesh.further, err = pki.ParseBundle(text)
	}
	if err != nil {
		p.Add(fmt.Errorf("%s.further_file: %w", path, err))
	}
}

// checkAs checks what depends on the kind of object.
func (c *Config) checkAs(p *settings.Problems, path string, r *MeshRoots) {
	switch r.As {
	case "", AsConfigMap:
		r.As = AsConfigMap
		r.Namespaces = cmp.Or(r.Namespaces, usualNamespaces)
	case AsTrustBundle:
		if r.Namespaces != "" {
			p.Say(path+".namespaces", r.Namespaces, "it has no effect with as: cluster_trust_bundle, which is one object for all namespaces; remove this")
		}
		if slices.ContainsFunc(c.Signers, func(s Signer) bool { return s.Name == MeshSigner && s.TrustBundle.Name != "" }) {
			p.Say(path+".as", r.As, "signers has a trust bundle of "+MeshSigner+" as well; remove one of the two")
		}
	default:
		p.Say(path+".as", r.As, "write config_map or cluster_trust_bundle")
	}
}

func (c *Config) checkIstiod(p *settings.Problems, i *Istiod) {
	const path = "mesh.istiod"
	if off(p, path, i.Enabled, *i) {
		return
	}
	c.settle(p, path+".authority", &i.Authority)
	if i.Namespace == "" {
		i.Namespace = usualSystem
	}
	if !settings.IsNamespace(i.Namespace) {
		p.Say(path+".namespace", i.Namespace, settings.WriteNamespace)
	}
	if len(i.Clusters) == 0 {
		i.Clusters = []string{c.Cluster.ID}
	}
	for n, id := range i.Clusters {
		if !settings.IsClusterID(id) {
			p.Say(fmt.Sprintf("%s.clusters.%d", path, n), id, "write a cluster ID: 1 to 253 letters, digits, dots, - and _")
		}
	}
	if i.TTL.Duration == 0 {
		i.TTL = duration(24 * time.Hour)
	}
	if i.TTL.Duration < time.Minute {
		p.Say(path+".ttl", i.TTL, "write 1m or more")
	}
	if _, err := pki.NewIdentity("", i.Names(), nil); err != nil {
		p.Add(fmt.Errorf("%s: %w", path, err))
	}
	for _, name := range i.Names() {
		if strings.ContainsAny(name, "{}") {
			p.Say(path+".dns_names", name, "write the names out")
		}
	}
}
