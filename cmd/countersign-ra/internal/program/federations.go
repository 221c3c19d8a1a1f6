package program

import (
	"context"
	"fmt"
	"sync"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/followed"
	"github.com/countersign-dev/countersign/kubernetes/signing/trustbundle"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// federations are the bundle endpoints that the leader follows, by signer: pods of one signer may be
// federated with a trust domain that pods of another one are not.
type federations map[string]*federation.Source

// openEndpoints reads the files of the endpoints once, so that a later session cannot fail by them.
func (s *service) openEndpoints() error {
	s.endpoints = map[string][]federation.Endpoint{}
	for _, signer := range s.config.Signers {
		for _, f := range signer.TrustBundle.BundleEndpoints {
			e, err := followed.Endpoint(f)
			if err != nil {
				return fmt.Errorf("signers.%s.trust_bundle.bundle_endpoints.%w", signer.Name, err)
			}
			s.endpoints[signer.Name] = append(s.endpoints[signer.Name], e)
		}
	}
	_, err := new(leaderSession).follows(s)
	return err
}

// follows returns the endpoints of this session. It asks none before [federations.run]: what a replica
// read long before it leads may be older than what the last leader has written.
func (t *leaderSession) follows(s *service) (federations, error) {
	all := federations{}
	for signer, endpoints := range s.endpoints {
		source, err := federation.New(endpoints, federation.Options{
			Log: s.log, Changed: func(trustDomain string) { t.foreignChanged(signer, trustDomain) },
			Kept: func(trustDomain string) *pki.Bundle { return t.written(signer, trustDomain) },
		})
		if err != nil {
			return nil, fmt.Errorf("signers.%s.trust_bundle.bundle_endpoints: %w", signer, err)
		}
		all[signer] = source
	}
	return all, nil
}

func (f federations) run(ctx context.Context, running *sync.WaitGroup) {
	for _, source := range f {
		running.Go(func() { source.Run(ctx) })
	}
}

// of returns what trust bundles need.
func (f federations) of(s config.Signer) (all trustbundle.Federated) {
	for _, e := range s.TrustBundle.BundleEndpoints {
		all.TrustDomains = append(all.TrustDomains, e.TrustDomain)
	}
	all.Roots = func(trustDomain string) (*pki.Bundle, bool) {
		source := f[s.Name]
		if source == nil {
			return nil, false
		}
		return source.Answered(trustDomain)
	}
	return all
}

// fault returns why the roots of a trust domain may be out of date.
func (f federations) fault(signer, trustDomain string) string {
	source := f[signer]
	if source == nil {
		return ""
	}
	for _, s := range source.Status() {
		switch {
		case s.TrustDomain != trustDomain:
		case s.Problem != "":
			return s.Problem
		case s.Roots == 0 && !s.Fetched.IsZero():
			return "the trust domain has revoked all of its roots: no pod trusts its certificates"
		}
	}
	return ""
}

// foreignChanged passes a change of a foreign trust domain's roots on to the trust bundles.
func (t *leaderSession) foreignChanged(signer, trustDomain string) {
	for _, o := range t.all() {
		if o.bundles != nil {
			o.bundles.ForeignChanged(signer, trustDomain)
		}
	}
}

// written returns the roots of a foreign trust domain that a former leader has written at home. They
// verify its endpoint until the first answer, as those of initial_file may be out of date.
func (t *leaderSession) written(signer, trustDomain string) *pki.Bundle {
	t.mu.Lock()
	o := t.clusterRuns[t.config.Cluster.ID]
	t.mu.Unlock()
	if o == nil || o.bundles == nil {
		return nil
	}
	return o.bundles.Foreign(signer, trustDomain)
}
