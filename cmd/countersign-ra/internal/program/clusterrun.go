package program

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/quorum"
	"github.com/countersign-dev/countersign/kubernetes/certmanager"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/csr"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
	"github.com/countersign-dev/countersign/kubernetes/signing/podcert"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// clusterRun is the work in one cluster in a leader session.
type clusterRun struct {
	cluster *fleet.Cluster

	pods      *podcert.Door     // nil: no signer has pod certificates
	requests  *csr.Door         // nil: no signer has certificate requests
	bundles   *trustbundle.Door // nil: no signer has a trust bundle
	mesh      mesh
	clientCA  *guard.ClientCA
	admission *guard.Admission  // nil: no signer has pod certificates
	manager   *certmanager.Door // nil: no authority is for cert-manager, or the cluster is remote
	wrong     error             // why there is none of these

	stop    context.CancelFunc
	running sync.WaitGroup
}

// openClusterRun begins the work in a cluster, whose client CAs former may know. An API server that is
// away or hangs delays no other cluster.
func (t *leaderSession) openClusterRun(ctx context.Context, cluster *fleet.Cluster, former *guard.ClientCA) *clusterRun {
	o := &clusterRun{cluster: cluster}
	ctx, o.stop = context.WithCancel(ctx)
	if o.wrong = o.make(t, former); o.wrong != nil {
		t.log.Error("cluster not served", "cluster", cluster.ID(), "error", o.wrong)
		return o
	}
	work := func(run func(context.Context)) { o.running.Go(func() { run(ctx) }) }
	work(o.clientCA.Run)
	if o.pods != nil {
		work(o.clientCA.After(o.pods.Run))
		work(o.admission.Run)
	}
	if o.requests != nil {
		work(o.clientCA.After(o.requests.Run))
	}
	if o.bundles != nil {
		work(o.bundles.Run)
	}
	if o.mesh.roots != nil {
		work(o.mesh.roots.Run)
	}
	if o.mesh.istiod != nil {
		work(o.clientCA.After(o.mesh.istiod.Run))
	}
	if o.manager != nil {
		work(o.clientCA.After(func(ctx context.Context) { o.manager.Run(ctx, t.home) }))
	}
	return o
}

func (o *clusterRun) make(t *leaderSession, former *guard.ClientCA) error {
	var errs [7]error
	id, client, issuer := o.cluster.ID(), o.cluster.Client(), t.issuer
	o.clientCA, errs[0] = guard.NewClientCA(guard.ClientCAConfig{Cluster: id, Client: client, Former: former, Log: t.log})
	if bundles := bundlesOf(t.config, t.federations); len(bundles) > 0 {
		o.bundles, errs[1] = trustbundle.New(trustbundle.Config{
			Cluster: id, Client: client, Bundles: bundles, Roots: t.engine.Roots,
			Written: t.quorum.Hook(id, quorum.TrustBundles), Held: t.held, Log: t.log,
		})
		if errs[1] != nil {
			return errs[1]
		}
		issuer = o.bundles.Hold(issuer)
	}
	door := func(kind string) signing.Config {
		return signing.Config{Cluster: id, Issuer: issuer, Observe: t.metrics.Request(id, kind), Log: t.log}
	}
	if pods := podSigners(t.config.Signers); len(pods) > 0 {
		o.pods, errs[2] = podcert.New(podcert.Config{Config: door("PodCertificateRequest"), Client: client, Signers: pods})
		o.admission, errs[3] = guard.NewAdmission(guard.AdmissionConfig{Cluster: id, Client: client, Signers: pods, Log: t.log})
	}
	errs[5] = o.makeMesh(t, issuer, t.quorum.Hook(id, quorum.MeshRoots))
	if signers := requestSigners(t.config.Signers); len(signers) > 0 {
		o.requests, errs[4] = csr.New(csr.Config{Config: door("CertificateSigningRequest"), Client: client, Signers: signers})
	}
	errs[6] = o.makeCertManager(t.config.CertManager, door("CertificateRequest"))
	return errors.Join(errs[:]...)
}

func podSigners(signers []config.Signer) (all []string) {
	for _, s := range signers {
		if s.PodCertificates.Enabled {
			all = append(all, s.Name)
		}
	}
	return all
}

func requestSigners(signers []config.Signer) (all []csr.Signer) {
	for _, s := range signers {
		if s.CertificateRequests.Enabled {
			all = append(all, csr.Signer{Name: s.Name, Approve: s.CertificateRequests.Approve})
		}
	}
	return all
}

func bundlesOf(c config.Config, f federations) (all []trustbundle.Bundle) {
	for _, s := range c.Signers {
		if b := s.TrustBundle; b.Name != "" {
			all = append(all, trustbundle.Bundle{Signer: s.Name, Authority: b.Authority, Name: b.Name, Labels: b.Labels, Federated: f.of(s)})
		}
	}
	if r := c.Mesh.Roots; r.As == config.AsTrustBundle {
		all = append(all, trustbundle.Bundle{Signer: config.MeshSigner, Authority: r.Authority, Name: config.MeshBundle, Further: c.Mesh.Further(), Adopt: r.Adopt})
	}
	return all
}

// publishersOf returns what writes an authority's roots in each cluster.
func publishersOf(c config.Config) func(authority string) []quorum.Publisher {
	return func(authority string) (all []quorum.Publisher) {
		if slices.ContainsFunc(bundlesOf(c, nil), func(b trustbundle.Bundle) bool { return b.Authority == authority }) {
			all = append(all, quorum.TrustBundles)
		}
		if c.Mesh.Publishes(authority) && c.Mesh.Roots.As == config.AsConfigMap {
			all = append(all, quorum.MeshRoots)
		}
		return all
	}
}

func (o *clusterRun) rootsChanged(authority string, roots *pki.Bundle) {
	if o.bundles != nil {
		o.bundles.Changed(authority, roots)
	}
	o.mesh.changed(authority, roots)
}

// ready returns nil while all that there is to do in the cluster is known.
func (o *clusterRun) ready() error {
	if o.wrong != nil {
		return o.wrong
	}
	errs := []error{o.clientCA.Ready()}
	if o.pods != nil {
		errs = append(errs, o.pods.Ready())
	}
	if o.requests != nil {
		errs = append(errs, o.requests.Ready())
	}
	if o.manager != nil {
		errs = append(errs, o.manager.Ready())
	}
	return errors.Join(errs...)
}

// close ends the work and returns when all is quiet. A nil clusterRun is closed.
func (o *clusterRun) close() {
	if o != nil {
		o.stop()
		o.running.Wait()
	}
}

// knew returns the client CAs of the cluster; nil for a nil clusterRun.
func (o *clusterRun) knew() *guard.ClientCA {
	if o == nil {
		return nil
	}
	return o.clientCA
}
