// Package workloadapi serves a [secret.Source] over the SPIFFE Workload API, so that
// clients such as go-spiffe, java-spiffe, rust-spiffe and spiffe-helper get certificates
// from any CA. The agent calls [Listen] for a unix socket, an embedder [NewService] for its
// own gRPC server. It serves X.509-SVIDs and trust bundles, and JWT-SVIDs if [Offer].JWT signs
// them; else their bundles are empty, and the other two calls return Unimplemented. WIT-SVIDs, which
// are experimental, are served if [Offer].WIT keeps them; else their two calls return Unimplemented.
//
// The protocol: https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Workload_API.md
package workloadapi

import (
	"fmt"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Identity is one identity of a workload: a certificate with a SPIFFE ID and the roots
// of its trust domain.
type Identity struct {
	// Certificate and Roots are secret names: of the key pair, and of the trust bundle
	// that verifies peers in the same trust domain. Required.
	Certificate, Roots string
	// Hint distinguishes several identities, as in "internal". Hints must be unique.
	// Default: none.
	Hint string
	// TrustDomain is that of Certificate, as in "example.org": with it, FetchX509Bundles
	// sends the roots before the certificate is there. Default: known from the certificate.
	TrustDomain string
}

// Offer lists what workloads may get. A caller gets those secrets that the source has
// for it.
type Offer struct {
	// Identities are in send order: a caller's first one is its default. Default: one
	// identity, of "default" and "ROOTCA".
	Identities []Identity
	// Federated maps foreign trust domains, as in "example.com", to the secret names of
	// their trust bundles. Default: none.
	Federated map[string]string
	// JWT signs JWT-SVIDs for the identities, and its keys are those of their trust domains.
	// Default: no JWT-SVIDs.
	JWT JWTSource
	// WIT keeps WIT-SVIDs for the identities, and its keys are those of their trust domains.
	// Experimental. Default: no WIT-SVIDs.
	WIT WITSource
	// FederatedJWT has the JWT keys of the trust domains in Federated. Default: none.
	FederatedJWT JWTBundles
	// FederatedWIT has the WIT keys of the trust domains in Federated. Experimental. Default: none.
	FederatedWIT WITBundles
}

// checked validates the offer and returns it with defaults applied.
func (o Offer) checked() (Offer, error) {
	if len(o.Identities) == 0 {
		o.Identities = []Identity{{Certificate: "default", Roots: "ROOTCA"}}
	}
	hints := map[string]bool{}
	for i, identity := range o.Identities {
		switch {
		case identity.Certificate == "" || identity.Roots == "":
			return o, fmt.Errorf("workloadapi: Identities[%d] needs a Certificate and Roots, names of secrets", i)
		case identity.Hint != "" && hints[identity.Hint]:
			return o, fmt.Errorf("workloadapi: the hint %.256q is there twice; no two identities may have the same", identity.Hint)
		}
		hints[identity.Hint] = true
	}
	for domain, name := range o.Federated {
		if err := pki.CheckTrustDomain(domain); err != nil {
			return o, fmt.Errorf("workloadapi: Federated: %w", err)
		}
		if name == "" {
			return o, fmt.Errorf("workloadapi: Federated[%q] is empty; name a trust bundle", domain)
		}
	}
	return o, nil
}

// names returns the names of all secrets of the offer, without duplicates.
func (o Offer) names() []string {
	seen := map[string]bool{}
	var all []string
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	for _, identity := range o.Identities {
		add(identity.Certificate)
		add(identity.Roots)
	}
	for _, name := range o.Federated {
		add(name)
	}
	return all
}
