// Package workloadapi serves a [secret.Source] over the SPIFFE Workload API, so that
// whoever uses go-spiffe, java-spiffe, rust-spiffe or spiffe-helper gets certificates
// from any authority: [Listen] on a unix socket of its own, or [NewService] on a gRPC
// server of yours. X.509-SVIDs and their bundles are served; the calls for JWT-SVIDs
// end with Unimplemented.
//
// The protocol: https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE_Workload_API.md
package workloadapi

import (
	"fmt"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// Identity is one that a workload gets: a certificate with a SPIFFE ID and the roots
// of its trust domain.
type Identity struct {
	// Certificate and Roots are names of secrets: of the key pair, and of the trust
	// bundle that peers of the same trust domain are verified with. Required.
	Certificate, Roots string
	// Hint says what the identity is for where there are several, as in "internal":
	// no two have the same. Default: none.
	Hint string
}

// Offer is what workloads may get. A caller gets those of its secrets that the source
// knows for it.
type Offer struct {
	// Identities are in the order in which they are sent: the first that a caller
	// may have is its default. Default: one, of "default" and "ROOTCA".
	Identities []Identity
	// Federated are names of trust bundles by the foreign trust domain whose peers
	// they verify, as in "example.com". Default: none.
	Federated map[string]string
}

// checked returns the offer with its defaults filled in.
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

// names are those of all secrets of the offer, each once.
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
