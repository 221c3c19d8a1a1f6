package program

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/kubernetes/istiodtls"
	"github.com/countersign-dev/countersign/kubernetes/meshroots"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// mesh is what a clusterRun writes for a mesh of Istio.
type mesh struct {
	roots  *meshroots.Keeper // nil: not configured
	istiod *istiodtls.Keeper // nil: this cluster has none
}

func (o *clusterRun) makeMesh(t *leaderSession, issuer signing.Issuer, written func(string, *pki.Bundle)) error {
	id, client, m := o.cluster.ID(), o.cluster.Client(), t.config.Mesh
	var errs [2]error
	if r := m.Roots; r.Enabled {
		o.mesh.roots, errs[0] = meshroots.New(meshroots.Config{
			Cluster: id, Client: client, Namespaces: r.Selector(), Authority: r.Authority, Roots: t.engine.Roots, Further: m.Further(),
			Written: written, Adopt: r.Adopt, Held: t.held, Log: t.log,
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

func (m mesh) run(ctx context.Context, running *sync.WaitGroup) {
	if m.roots != nil {
		running.Go(func() { m.roots.Run(ctx) })
	}
	if m.istiod != nil {
		running.Go(func() { m.istiod.Run(ctx) })
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

// publisher is what writes an authority's roots in a cluster.
type publisher string

const (
	trustBundles publisher = "trust bundles"
	meshRoots    publisher = "the mesh"
)

// writtenIn joins what the publishers of one cluster have written: a root is there when both have
// it.
type writtenIn struct {
	tell func(authority string, roots *pki.Bundle)
	both func(authority string) bool

	mu   sync.Mutex
	have map[string]map[publisher]*pki.Bundle // by authority
}

func (t *leaderSession) writtenIn(cluster string) *writtenIn {
	return &writtenIn{
		tell: func(authority string, roots *pki.Bundle) { t.written.note(cluster, authority, roots) },
		both: func(authority string) bool { return publishedTwice(t.config, authority) }, have: map[string]map[publisher]*pki.Bundle{},
	}
}

func publishedTwice(c config.Config, authority string) bool {
	return c.Mesh.Publishes(authority) && slices.ContainsFunc(c.Signers, func(s config.Signer) bool { return s.TrustBundle.Authority == authority })
}

// by returns the hook of one publisher.
func (w *writtenIn) by(p publisher) func(authority string, roots *pki.Bundle) {
	return func(authority string, roots *pki.Bundle) {
		if !w.both(authority) {
			w.tell(authority, roots)
			return
		}
		w.mu.Lock() // held during the call, so that the last call has the current roots
		defer w.mu.Unlock()
		if w.have[authority] == nil {
			w.have[authority] = map[publisher]*pki.Bundle{}
		}
		w.have[authority][p] = roots
		if bundles, others := w.have[authority][trustBundles], w.have[authority][meshRoots]; bundles != nil && others != nil {
			w.tell(authority, bundles.Filter(others.Contains))
		}
	}
}

func (m mesh) report() *status.Mesh {
	if m.roots == nil && m.istiod == nil {
		return nil
	}
	r := &status.Mesh{}
	if m.roots != nil {
		s := m.roots.Status()
		r.Roots = &status.MeshRoots{Authority: s.Authority, Roots: s.Roots, Namespaces: s.Namespaces, Lacking: s.Lacking, Disputed: s.Disputed, Rival: s.Rival, Error: s.Error}
	}
	if m.istiod != nil {
		s := m.istiod.Status()
		r.Istiod = &status.Istiod{Authority: s.Authority, Namespace: s.Namespace, Fingerprint: s.Fingerprint, NotAfter: s.NotAfter, Rival: s.Rival, Error: s.Error}
	}
	return r
}
