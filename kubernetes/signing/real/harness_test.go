//go:build e2e

package real_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/kubernetes/signing/csr"
	"github.com/countersign-dev/countersign/kubernetes/signing/guard"
	"github.com/countersign-dev/countersign/kubernetes/signing/podcert"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = programs.Remove()
		os.Exit(code)
	}))
}

const (
	cluster   = "home"
	authority = "ca"
	signer    = "example.com/mesh"    // of the manifests
	byHand    = "example.org/by-hand" // its CertificateSigningRequests are approved by people
	// bundleName is what the manifests let the registration authority update.
	bundleName = "example.com:mesh:bundle"
)

// site is a real cluster, with or without a registration authority.
type site struct {
	*kubetest.Cluster
	t testing.TB
}

// registrar is a real cluster with a registration authority, whose CA is in memory.
type registrar struct {
	site
	ca      namingCA
	engine  *ra.Engine
	pods    *podcert.Door
	csrs    *csr.Door
	bundles *trustbundle.Door
	log     *logtest.Log
	// closePods ends the door for pods, and returns when it is quiet.
	closePods func()
}

// namingCA certifies the names of a request, as a kubelet's CSR has none.
type namingCA struct {
	*catest.CA
	// refuse returns why the CA is away for a request, or nil. Optional.
	refuse func(ca.SignRequest) error
}

func (namingCA) CertifiesNames(context.Context) error { return nil }

func (c namingCA) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	if c.refuse != nil {
		if err := c.refuse(req); err != nil {
			return ca.Certificate{}, err
		}
	}
	return c.CA.CSRSign(ctx, req)
}

// open starts a registration authority. Its limits are those of the CA.
func open(t testing.TB, c *kubetest.Cluster, limits ra.Limits) *registrar {
	t.Helper()
	return openWith(t, c, namingCA{CA: catest.NewCA(catest.Options{NamesFromRequest: true, Intermediates: 1})}, limits)
}

func openWith(t testing.TB, c *kubetest.Cluster, authority namingCA, limits ra.Limits) *registrar {
	t.Helper()
	o := &registrar{site: site{c, t}, log: &logtest.Log{}, ca: authority}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the registration authority:\n%s", o.log)
		}
	})
	applyRights(t, c)
	o.makeBundles()
	clients := o.makeGuard()
	o.makeEngine(limits, guard.NewAuthorities(o.log.Logger(), func() []*guard.ClientCA { return []*guard.ClientCA{clients} }))
	o.openDoors(o.bundles.Hold(o.engine))
	return o
}

func (o *registrar) makeEngine(limits ra.Limits, by ra.Guard) {
	o.t.Helper()
	audit, err := os.Create(filepath.Join(o.t.TempDir(), "audit.jsonl"))
	must(o.t, err)
	o.t.Cleanup(func() { must(o.t, audit.Close()) })
	o.engine, err = ra.New(ra.Config{
		Policy: policy(o.t), Audit: audit, Log: o.log.Logger(), Guard: by, RootsChanged: o.bundles.Changed,
		Authorities: []ra.Authority{{Name: authority, Client: o.ca, Limits: limits, Roots: ra.Roots{Confirmed: true}}},
		Doors:       []ra.Door{signing.PodDoor(signer), signing.CSRDoor(signer), signing.CSRDoor(byHand)},
	})
	must(o.t, err)
	o.t.Cleanup(o.engine.Close)
}

func (o *registrar) makeBundles() {
	o.t.Helper()
	var err error
	o.bundles, err = trustbundle.New(trustbundle.Config{
		Cluster: cluster, Client: o.client(), Bundles: []trustbundle.Bundle{{Signer: signer, Authority: authority, Name: bundleName}}, Log: o.log.Logger(),
		Roots:   func(authority string) *pki.Bundle { return o.engine.Roots(authority) },
		Written: func(authority string, roots *pki.Bundle) { o.engine.RootsWritten(authority, roots) },
	})
	must(o.t, err)
}

func (o *registrar) makeGuard() *guard.ClientCA {
	o.t.Helper()
	clients, err := guard.NewClientCA(guard.ClientCAConfig{Cluster: cluster, Client: o.client(), Log: o.log.Logger()})
	must(o.t, err)
	inBackground(o.t, clients.Run)
	return clients
}

func (o *registrar) openDoors(issuer ra.Issuer) {
	o.t.Helper()
	var err error
	common := signing.Config{Cluster: cluster, Issuer: issuer, Log: o.log.Logger()}
	o.pods, err = podcert.New(podcert.Config{Config: common, Client: o.client(), Signers: []string{signer}})
	must(o.t, err)
	o.csrs, err = csr.New(csr.Config{
		Config: common, Client: o.client(),
		Signers: []csr.Signer{{Name: signer, Approve: true}, {Name: byHand}},
	})
	must(o.t, err)
	o.closePods = inBackground(o.t, o.pods.Run)
	inBackground(o.t, o.csrs.Run)
	inBackground(o.t, o.bundles.Run)
}

// inBackground runs something that ends with its context, until the test ends or end is called.
func inBackground(t testing.TB, run func(context.Context)) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	end = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(end)
	return end
}

var must = fatal.If
