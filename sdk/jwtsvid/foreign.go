package jwtsvid

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
)

// Foreign holds the keys of federated trust domains and judges their JWT-SVIDs. Each trust domain
// is judged by its own keys alone. The zero value has no keys; its methods are safe for
// concurrent use.
type Foreign struct {
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time

	mu       sync.Mutex
	held     map[string]*tokensource.Published // by trust domain
	watchers watchers.Set[func()]
}

// Set replaces the keys of a trust domain with a JWK set. A set without keys revokes all of them.
// A set that cannot be read is an error and changes nothing.
func (f *Foreign) Set(trustDomain string, jwks []byte) error {
	next, err := kind.ReadBundle(jwks)
	if err != nil {
		return err
	}
	for _, notify := range f.put(trustDomain, next) {
		notify()
	}
	return nil
}

// put returns the watchers to notify.
func (f *Foreign) put(trustDomain string, next *tokensource.Published) (notify []func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was := f.held[trustDomain]; was != nil && string(was.JWKS) == string(next.JWKS) {
		return nil
	}
	if f.held == nil {
		f.held = map[string]*tokensource.Published{}
	}
	f.held[trustDomain] = next
	return f.watchers.All()
}

func (f *Foreign) of(trustDomain string) *tokensource.Published {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held[trustDomain]
}

// Keys returns the public keys of a trust domain, a JWK set that must not be modified; nil while
// they are not known.
func (f *Foreign) Keys(trustDomain string) []byte {
	if p := f.of(trustDomain); p != nil {
		return p.JWKS
	}
	return nil
}

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
	p := f.of(trustDomain)
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
func (f *Foreign) Watch(notify func()) (stop func()) { return f.watchers.Add(notify) }
