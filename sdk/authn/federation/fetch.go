package federation

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/countersign-dev/countersign/internal/endpoint"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	maxRootCount    = 1000
	maxKeysOfTokens = 100 // of each kind
)

// published is the answer of an endpoint.
type published struct {
	roots      *pki.Bundle
	jwks, wits []byte // the keys of JWT-SVIDs and of WIT-SVIDs, nil if those cannot be used
	passedOver int    // non-CA certificates, and keys that cannot be used
	useless    string // why the first of those cannot be used
	refresh    time.Duration
}

// fetchFrom queries an endpoint once. go-spiffe parses the bundle and verifies a server
// by SPIFFE ID; its FetchBundle is not used because it accepts any status, size and
// redirect, and leaks a connection each time.
func fetchFrom(client *endpoint.Client, e Endpoint) func(context.Context) (published, error) {
	return func(ctx context.Context) (published, error) {
		reply, err := client.Do(ctx, http.MethodGet, e.URL, http.Header{"Accept": {"application/json"}}, nil)
		if err != nil {
			return published{}, fmt.Errorf("get %s: %w", text.Clean(e.URL), err)
		}
		if reply.Status != http.StatusOK {
			return published{}, fmt.Errorf("%s returned status %d", text.Clean(e.URL), reply.Status)
		}
		return parse(e.TrustDomain, reply.Body)
	}
}

// parse reads a bundle. An empty key list is valid: a trust domain uses it to revoke
// everything, and all its certificates become untrusted (SPIFFE Trust Domain and
// Bundle, section 4.1.3). A missing list is an error.
func parse(trustDomain string, content []byte) (published, error) {
	td, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return published{}, err
	}
	content, useless, lost := usable(td, content)
	bundle, err := spiffebundle.Parse(td, content)
	switch {
	case err != nil:
		return published{}, err
	case lost != nil && len(bundle.X509Authorities()) == 0: // which is not a revocation of all
		return published{}, lost
	}
	authorities := bundle.X509Authorities()
	if len(authorities) > maxRootCount {
		return published{}, errors.New("bundle has more than 1000 roots")
	}
	for i, c := range authorities { // go-spiffe may read a document in another way than usable does
		if _, err := pki.ParseCertificate(c.Raw); err != nil {
			return published{}, fmt.Errorf("root %d of the bundle %w", i+1, err)
		}
	}
	// A leaf among the roots would itself be trusted.
	roots := pki.NewBundle(authorities...).Filter(func(c *x509.Certificate) bool { return c.BasicConstraintsValid && c.IsCA })
	jwks, err := keySet(bundle.JWTAuthorities(), "JWT-SVIDs", "")
	if err != nil {
		return published{}, err
	}
	wits, err := keySet(bundle.WITAuthorities(), "WIT-SVIDs", jws.WITUse)
	if err != nil { // an experiment takes nothing from the rest
		wits, useless = nil, append(useless, err)
	}
	return published{roots, jwks, wits, len(authorities) - roots.Len() + len(useless), firstOf(useless), refreshOf(bundle)}, nil
}

// keySet returns keys as a JWK set, sorted, so that the same keys are the same bytes. Those of JWT-SVIDs
// have no use, as in SPIRE's: plain JOSE libraries do not know "jwt-svid".
func keySet(authorities map[string]crypto.PublicKey, of, use string) ([]byte, error) {
	if len(authorities) > maxKeysOfTokens {
		return nil, fmt.Errorf("bundle has more than %d keys of %s", maxKeysOfTokens, of)
	}
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, id := range slices.Sorted(maps.Keys(authorities)) {
		key := jose.JSONWebKey{Key: authorities[id], KeyID: id, Use: use}
		// A key that is not for verification is useless, and is not passed on.
		if jws.Verifies(key) {
			set.Keys = append(set.Keys, key)
		}
	}
	return json.Marshal(set)
}

func firstOf(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	return text.Clean(errs[0].Error())
}

func refreshOf(bundle *spiffebundle.Bundle) time.Duration {
	hint, told := bundle.RefreshHint()
	if !told || hint <= 0 { // beyond 292 years it has overflowed
		return defaultRefresh
	}
	return min(max(hint, minRefresh), maxRefresh)
}
