package program

import (
	"errors"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/quorum"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// mesh is what a clusterRun writes for a mesh of Istio.
type mesh struct {
	roots  *meshroots.Keeper // nil: not configured
	istiod *istiodtls.Keeper // nil: this cluster has none
}

func (o *clusterRun) makeMesh(t *leaderSession, issuer ra.Issuer, written func(string, *pki.Bundle)) error {
	id, client, m := o.cluster.ID(), o.cluster.Client(), t.now.Load().Mesh
	var errs [2]error
	if r := m.Roots; r.As == config.AsConfigMap {
		o.mesh.roots, errs[0] = meshroots.New(meshroots.Config{
			Cluster: id, Client: client, Namespaces: r.Selector(), Authority: r.Authority, Roots: t.engine.Roots, Further: m.Further(),
			Written: written, Lacking: func() time.Time {
				return t.engine.Lacking(r.Authority)[quorum.Place{Authority: r.Authority, Cluster: id, By: quorum.MeshRoots}.Key()]
			},
			Adopt: r.Adopt, Held: t.held, Log: t.log,
		})
	}
	if i := m.Istiod; i.Enabled && slices.Contains(i.Clusters, id) {
		o.mesh.istiod, errs[1] = istiodtls.New(istiodtls.Config{
			Cluster: id, Client: client, Namespace: i.Namespace, Names: i.Names(), Issuer: issuer, Authority: i.Authority, TTL: i.TTL.Duration,
			Roots: t.engine.Roots, Further: m.Further(), Adopt: i.Adopt, Held: t.held, Log: t.log,
		})
	}
	return errors.Join(errs[:]...)
}

// follow takes over the namespaces of a configuration.
func (m mesh) follow(c *config.Config) {
	if m.roots != nil {
		m.roots.SetNamespaces(c.Mesh.Roots.Selector())
	}
}

func (m mesh) changed(authority string, roots *pki.Bundle) {
	if m.roots != nil {
		m.roots.Changed(authority, roots)
	}
	if m.istiod != nil {
		m.istiod.Changed(authority, roots)
	}
}

func (m mesh) report() *status.Mesh {
	if m.roots == nil && m.istiod == nil {
		return nil
	}
	r := &status.Mesh{}
	if m.roots != nil {
		s := m.roots.Status()
		r.Roots = &status.MeshRoots{Authority: s.Authority, Roots: s.Roots, Namespaces: s.Namespaces, Lacking: s.Lacking, Left: s.Left, Disputed: s.Disputed, Rival: s.Rival, Error: s.Error}
	}
	if m.istiod != nil {
		s := m.istiod.Status()
		r.Istiod = &status.Istiod{Authority: s.Authority, Namespace: s.Namespace, Fingerprint: s.Fingerprint, NotAfter: s.NotAfter, Rival: s.Rival, Error: s.Error}
	}
	return r
}
