package program

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/kubernetes/record"
	"github.com/countersign-dev/countersign/ra/istioca"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/authn/jwt"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// anyAccount is the form of the names of service accounts by which a JWT's subject is known. The
// rules give the names of certificates.
const anyAccount = "spiffe://caller/ns/{namespace}/sa/{service_account}"

// callers are those in force. A reload replaces them; one goroutine at a time does.
type callers struct {
	now       atomic.Pointer[config.Config]
	verifiers []verifier
}

// verifier verifies the tokens of an issuer, and remembers its keys over a reload.
type verifier struct {
	of   config.IstioIssuer
	with *jwt.Verifier
}

// settings returns the door's, with the callers of a configuration.
func (d *door) settings(c *config.Config) (istioca.Config, error) {
	cfg := istioca.Config{
		Issuer: d, IssuerClusters: map[string]string{}, NodeProxies: c.Proxies(), Pods: d.pods, CertSigners: c.CertSigners(),
		HoldNames: c.Istio.CSRNames == config.CSRNamesHeld, Ready: d.serves, Observe: d.called, Log: d.of.log,
	}
	cfg.Limits, cfg.Times = c.Istio.Bounds()
	var err error
	if cfg.TLS, err = d.tls(); err != nil {
		return cfg, err
	}
	if cfg.Renewals, err = d.renewals(c); err != nil {
		return cfg, err
	}
	var verifiers []verifier
	for i, issuer := range c.Istio.Issuers {
		v, err := d.verifier(issuer)
		if err != nil {
			return cfg, fmt.Errorf("istio.issuers.%d: %w", i, err)
		}
		verifiers = append(verifiers, v)
		cfg.Tokens = append(cfg.Tokens, authn.Named{Name: "jwt " + issuer.Issuer, Authenticator: v.with})
		cfg.IssuerClusters[issuer.Issuer] = issuer.Cluster
	}
	cfg.Tokens = append(cfg.Tokens, authn.Named{Name: "kubernetes", Authenticator: d.reviews(c)})
	d.callers.verifiers = verifiers
	return cfg, nil
}

// prepare checks the callers of another configuration, and returns what takes them over: nothing, if
// they are the same.
func (d *door) prepare(c *config.Config) (replace func(), err error) {
	if d == nil || sameCallers(d.callers.now.Load(), c) {
		return func() {}, nil
	}
	cfg, err := d.settings(c)
	if err != nil {
		return nil, err
	}
	take, err := d.server.Prepare(cfg)
	if err != nil {
		return nil, err
	}
	return func() {
		take()
		d.callers.now.Store(c)
		d.of.shifted.give()
	}, nil
}

func sameCallers(a, b *config.Config) bool {
	return reflect.DeepEqual(a.Istio, b.Istio) && slices.Equal(a.CertSigners(), b.CertSigners()) && slices.Equal(a.RenewedAuthorities(), b.RenewedAuthorities())
}

func (d *door) verifier(issuer config.IstioIssuer) (verifier, error) {
	for _, known := range d.callers.verifiers {
		if reflect.DeepEqual(known.of, issuer) {
			return known, nil
		}
	}
	v, err := jwt.New(jwt.Config{
		Issuer: issuer.Issuer, Audiences: issuer.Audiences, JWKSURL: issuer.JWKSURL, JWKSFile: issuer.JWKSFile, RootFile: issuer.RootFile,
		ServiceAccounts: anyAccount, TrustDomain: issuer.TrustDomain, Log: d.of.log,
	})
	return verifier{issuer, v}, err
}

// reviews returns the verifiers of Kubernetes tokens of the clusters that may use the door.
func (d *door) reviews(c *config.Config) authn.Clusters {
	home, allowed, fleet := c.Cluster.ID, c.Istio.Clusters, d.of.clusters
	return func(id string) authn.Authenticator {
		if id == "" {
			id = home
		}
		if len(allowed) > 0 && !slices.Contains(allowed, id) {
			return nil
		}
		if d.behind(id) {
			return leftBehind{}
		}
		if cluster, ok := fleet.Cluster(id); ok {
			return cluster.Authenticator()
		}
		if fleet.Known(id) {
			return absent{}
		}
		return nil
	}
}

// renewals returns the settings of machines that renew by their certificates.
func (d *door) renewals(c *config.Config) (istioca.Renewals, error) {
	set, tokens := c.Istio.Renewals, d.reviews(c)
	if len(set.Identities) == 0 {
		return istioca.Renewals{}, nil
	}
	r := istioca.Renewals{
		Identities: set.Identities, Longest: set.Longest.Duration, Authorities: c.RenewedAuthorities(), Roots: d.roots,
		Reviewed: func(cluster string) bool { return tokens(cluster) != nil },
	}
	for n := range renewalObjects {
		kept, err := record.NewSingle(record.Object{
			Client: d.of.clusters.Local().Client(), Kind: record.ConfigMap, Namespace: c.Cluster.SystemNamespace, Name: fmt.Sprintf("%s-renewals-%d", config.Lease, n),
		}, record.Renewals)
		if err != nil {
			return r, err
		}
		r.Records = append(r.Records, kept)
	}
	return r, nil
}

// renewalObjects is the number of ConfigMaps that have the record of renewals. The rights name each.
const renewalObjects = 8

func (d *door) roots(authority string) *pki.Bundle {
	if engine := d.engine.Load(); engine != nil {
		return engine.Roots(authority)
	}
	return nil
}

// absent stands for a cluster that is not connected now.
type absent struct{}

// Authenticate implements [authn.Authenticator].
func (absent) Authenticate(context.Context, authn.Credential) (authn.Identity, error) {
	return authn.Identity{}, authn.Errorf(authn.ErrUnavailable, "the cluster is not connected")
}

// clusters are those of issuers, as rules have them.
func (c *callers) clusters() (all []string) {
	for _, issuer := range c.now.Load().Istio.Issuers {
		all = append(all, issuer.Cluster)
	}
	return all
}
