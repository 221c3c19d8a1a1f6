// Package wiring turns the providers and secrets of a configuration into what the engine uses
// ([Authority], [Spec]), including the providers' tokens ([TokenCache]); [Locked] reads a lock
// file's pins. The agent and
// countersign-discovery call it when they start and reload; apart from the TokenCache it keeps
// no state.
package wiring

import (
	"fmt"
	"os"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/host/safefile"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const maxPinnedRoots = 4 << 20 // bytes

var nameChecks = map[string]pki.NameCheck{"exact": pki.ExactNames, "trust-domain": pki.TrustDomainName, "any": pki.AnyName}

// Authority converts an entry of the configuration for the engine: the client that the host
// has for it, with the entry's tokens and trust.
func Authority(entry config.Provider, client ca.Client, cache *TokenCache) (secret.Authority, error) {
	a := secret.Authority{Name: entry.Name, Client: client, AcceptLongerTTL: entry.AcceptLongerTTL, Requester: "Countersign"}
	if host, err := os.Hostname(); err == nil {
		a.Requester += " on " + host
	}
	if check, set := nameChecks[entry.IdentityCheck]; set {
		a.Names = &check
	}
	if tokens, err := cache.of(entry, client); err != nil {
		return a, err
	} else if tokens != nil {
		a.Token, a.TokenRejected = tokens.Token, tokens.Rejected
	}
	if entry.RootOverlap != nil {
		a.RootOverlap = &entry.RootOverlap.Duration
	}
	if entry.PinnedRoots == "" {
		return a, nil
	}
	text, err := safefile.Read(entry.PinnedRoots, maxPinnedRoots)
	if err == nil {
		a.PinnedRoots, err = pki.ParseBundle(text)
	}
	if err != nil {
		return a, fmt.Errorf("providers.%s.pinned_roots is %q: %w", entry.Name, entry.PinnedRoots, err)
	}
	return a, nil
}

// Spec converts a secret of a complete configuration for the engine.
func Spec(entry config.Secret, r config.Rotation) (secret.Spec, error) {
	kind := secret.KeyPair
	if entry.Kind == config.TrustBundle {
		kind = secret.TrustBundle
	}
	if kind == secret.TrustBundle && entry.SPIFFEID == "" {
		return secret.Spec{Name: entry.Name, Kind: kind, Authorities: entry.Providers}, nil
	}
	id, err := pki.NewIdentity(entry.SPIFFEID, entry.DNSNames, entry.IPAddresses)
	if err != nil {
		return secret.Spec{}, fmt.Errorf("secrets.%s: %w", entry.Name, err)
	}
	keyType, err := pki.ParseKeyType(entry.KeyType)
	return secret.Spec{
		Name: entry.Name, Kind: kind, Authorities: entry.Providers, Identity: id, FallbackAfter: entry.FallbackAfter.Duration,
		KeyType: keyType, TTL: entry.TTL.Duration, RenewRatio: r.Ratio, RenewJitter: max(r.Jitter, 1e-9), // 0 would be the default
	}, err
}
