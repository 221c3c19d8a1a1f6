package jwtsvid

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
)

// Validate judges a JWT-SVID by the standard: signed by one of the keys, of one of the trust
// domains, for the audience, and valid now. It returns the SPIFFE ID and all claims, as decoded by
// encoding/json. An error is [ca.ErrInvalid] or, while no keys are known, [ca.ErrUnavailable]; it
// does not quote the token.
func (s *Source) Validate(token ca.Token, audience string, trustDomains []string) (id string, claims map[string]any, err error) {
	p := s.tokens.Published()
	switch {
	case p == nil && s.tokens.Missing():
		return "", nil, ca.Errorf(ca.Unimplemented, "the authority signs no JWT-SVIDs")
	case p == nil:
		return "", nil, ca.Errorf(ca.Unavailable, "the keys of JWT-SVIDs are not known yet")
	case !isAudience(audience):
		return "", nil, ca.Errorf(ca.Invalid, "the audience is not 1 to %d printable bytes", maxAudience)
	}
	if id, claims, err = validate(token, audience, trustDomains, p.Keys, s.cfg.Now()); err != nil {
		return "", nil, redact.Error(ca.Errorf(ca.Invalid, "the JWT-SVID is refused: %w", err), token)
	}
	return id, claims, nil
}

func domainOf(id string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	return domain
}

func validate(token ca.Token, audience string, trustDomains []string, keys jws.Keys, now time.Time) (id string, all map[string]any, err error) {
	parsed, err := kind.Parse(token)
	if err != nil {
		return "", nil, err
	}
	payload, err := parsed.Payload(keys.Find(parsed.KeyID, parsed.Algorithm))
	if err != nil {
		return "", nil, err
	}
	c, err := tokensource.ReadClaims(payload, now)
	if err != nil {
		return "", nil, err
	}
	switch domain := domainOf(c.Subject); {
	case !slices.Contains(trustDomains, domain):
		return "", nil, fmt.Errorf("its trust domain is %.256q, whose keys are not known here", domain)
	case !slices.Contains(c.Audience, audience):
		return "", nil, fmt.Errorf("it is not for the audience %.256q", audience)
	}
	err = json.Unmarshal(payload, &all)
	return c.Subject, all, err
}
