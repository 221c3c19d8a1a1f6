package program

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/quorum"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/kubernetes/signing"
)

func (s *service) report() status.Report {
	r := status.Report{Process: s.life.Report(), At: time.Now().UTC(), Build: buildinfo.This(), Providers: s.providers.Status(), Audit: s.config.Audit.File, Istio: s.door.report()}
	r.Needs = s.state()
	if err := s.signs(); err != nil {
		r.NotReady = err.Error()
	}
	t := s.session.Load()
	if r.Leader.Leading = t != nil; s.lease != nil {
		r.Leader = s.lease.Status()
	}
	for _, c := range s.clusters.Status() {
		r.Clusters = append(r.Clusters, status.Cluster{Status: c})
	}
	if s.door != nil {
		r.Sharing = s.door.quotas.Load().report("istio")
	}
	if t != nil {
		t.report(&r)
	}
	return r
}

func (t *leaderSession) report(r *status.Report) {
	r.Sharing = append(r.Sharing, t.quotas.report("kubernetes")...)
	for _, a := range t.engine.Status() {
		r.Authorities = append(r.Authorities, status.AuthorityOf(a))
	}
	for i := range r.Clusters {
		t.mu.Lock()
		o := t.clusterRuns[r.Clusters[i].ID]
		t.mu.Unlock()
		t.reportBehind(&r.Clusters[i])
		r.Clusters[i].Left = t.quorum.LeftIn(r.Clusters[i].ID)
		if o == nil {
			r.Clusters[i].NotReady = "it is not connected"
			continue
		}
		o.report(&r.Clusters[i], t.federations)
		r.Clusters[i].Dangerous = t.dangerous(o)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Unable = t.unable
}

// reportBehind reports that no new root of the mesh waits for a cluster, which may not be connected.
func (t *leaderSession) reportBehind(k *status.Cluster) {
	if authority := t.config.Mesh.Roots.Authority; slices.Contains(t.engine.Behind(authority), k.ID) {
		k.Mesh = &status.Mesh{Roots: &status.MeshRoots{Authority: authority, Away: true}}
	}
}

// dangerous returns why authorities are not asked in a cluster whose client CAs are known.
func (t *leaderSession) dangerous(o *clusterRun) (all []string) {
	if o.wrong != nil || o.clientCA.Ready() != nil {
		return nil
	}
	for _, a := range t.config.Authorities {
		if err := o.clientCA.Check(a.Name, t.engine.Roots(a.Name)); err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}

// left returns the places that no new root waits for.
func (s *service) left() []quorum.Place {
	if t := s.session.Load(); t != nil {
		return t.quorum.Left()
	}
	return nil
}

// meshes returns what is written for a mesh, by cluster ID.
func (s *service) meshes() map[string]*status.Mesh {
	all := map[string]*status.Mesh{}
	if t := s.session.Load(); t != nil {
		for _, o := range t.all() {
			if m := o.mesh.report(); m != nil {
				all[o.cluster.ID()] = m
			}
		}
	}
	return all
}

func (o *clusterRun) report(k *status.Cluster, f federations) {
	if err := o.ready(); err != nil {
		k.NotReady = err.Error()
	}
	if o.wrong != nil {
		return
	}
	if o.bundles != nil {
		for _, b := range o.bundles.Status() {
			k.Bundles = append(k.Bundles, status.Bundle{
				Signer: b.Signer, Authority: b.Authority, TrustDomain: b.TrustDomain, Object: b.Object, Roots: b.Roots,
				Error: cmp.Or(b.Error, f.fault(b.Signer, b.TrustDomain)),
			})
		}
	}
	if behind, m := k.Mesh != nil, o.mesh.report(); m != nil {
		k.Mesh = m
		if m.Roots != nil {
			m.Roots.Away = behind
		}
	}
	k.Shut = o.shut()
	if o.admission != nil {
		p := o.admission.Protection()
		k.Protection = &status.Protection{State: p.State, Why: p.Why}
	}
}

func (o *clusterRun) shut() (all []status.Shut) {
	if o.pods != nil {
		all = shutOf("PodCertificateRequests", "to update podcertificaterequests/status, and to sign for ", o.pods.Shut())
	}
	if o.requests != nil {
		all = append(all, shutOf("CertificateSigningRequests", "to update certificatesigningrequests/status, and to sign for ", o.requests.Shut())...)
	}
	if o.manager != nil {
		all = append(all, shutOf("CertificateRequests", "to patch certificaterequests/status, for authority ", o.manager.Shut())...)
	}
	return all
}

func shutOf(kind, right string, gates []signing.Shut) (all []status.Shut) {
	for _, g := range gates {
		s := status.Shut{Signer: g.Signer, Requests: kind, Owners: g.Owners, Since: g.Since.UTC(), NextTrial: g.Next.UTC(), Error: g.Error}
		if g.Forbidden {
			s.Right = right + g.Signer
		}
		all = append(all, s)
	}
	return all
}
