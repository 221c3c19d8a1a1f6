package jwtsvid

import (
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
)

// Foreign holds the keys of federated trust domains and judges their JWT-SVIDs. Each trust domain
// is judged by its own keys alone. The zero value has no keys; its methods are safe for
// concurrent use.
type Foreign struct {
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time

	keys tokensource.Foreign
}

// Set replaces the keys of a trust domain with a JWK set. A set without keys revokes all of them.
// A set that cannot be read is an error and changes nothing.
func (f *Foreign) Set(trustDomain string, jwks []byte) error {
	return f.keys.Set(kind, trustDomain, jwks)
}

// Keys returns the public keys of a trust domain, a JWK set that must not be modified; nil while
// they are not known.
func (f *Foreign) Keys(trustDomain string) []byte { return f.keys.Keys(trustDomain) }

// DomainOf returns the trust domain that a token claims, unverified; empty if it is not a
// JWT-SVID.
func (f *Foreign) DomainOf(token ca.Token) string {
	parsed, err := kind.Parse(token)
	if err != nil {
		return ""
	}
	return domainOf(parsed.UnverifiedSubject())
}

// Validate is [Source.Validate] for a JWT-SVID of one foreign trust domain.
func (f *Foreign) Validate(token ca.Token, audience, trustDomain string) (id string, claims map[string]any, err error) {
	p := f.keys.Of(trustDomain)
	if p == nil {
		return "", nil, ca.Errorf(ca.Unavailable, "the keys of the trust domain %q are not known yet", trustDomain)
	}
	now := f.Now
	if now == nil {
		now = clock.Wall
	}
	if !isAudience(audience) {
		return "", nil, ca.Errorf(ca.Invalid, "the audience is not 1 to %d printable bytes", maxAudience)
	}
	if id, claims, err = validate(token, audience, []string{trustDomain}, p.Keys, now()); err != nil {
		return "", nil, redact.Error(ca.Errorf(ca.Invalid, "the JWT-SVID is refused: %w", err), token)
	}
	return id, claims, nil
}

// Watch calls notify after each change of the keys, until stop. notify must not block.
func (f *Foreign) Watch(notify func()) (stop func()) { return f.keys.Watch(notify) }
