package jwtsvid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// leeway is the tolerated difference of clocks.
	leeway      = 30 * time.Second
	keyPatience = 5 * time.Second
)

type claims struct {
	Subject   string       `json:"sub"`
	Audience  jws.Audience `json:"aud"`
	Expiry    *float64     `json:"exp"`
	NotBefore *float64     `json:"nbf"`
	IssuedAt  *float64     `json:"iat"`
}

// parse reads a token of a stranger up to its signature.
func parse(token ca.Token) (jws.Token, error) {
	// The base64 decoder skips line breaks.
	if n := len(token); n == 0 || n > maxToken || strings.ContainsAny(token.Reveal(), "\r\n") {
		return jws.Token{}, fmt.Errorf("not a JWT-SVID of 1 to %d bytes", maxToken)
	}
	parsed, err := jws.Parse(token.Reveal(), jws.SVIDAlgorithms)
	if err != nil {
		return parsed, err
	}
	if kind := parsed.Type(); kind != "" && kind != "JWT" && kind != "JOSE" {
		return parsed, fmt.Errorf("its type is %.64q, JWT and JOSE are allowed", kind)
	}
	return parsed, nil
}

// read returns the claims of a payload whose signature is verified, if they are of now.
func read(payload []byte, now time.Time) (claims, error) {
	var c claims
	// This decoder is case-sensitive and rejects duplicate names.
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, fmt.Errorf("its claims are malformed: %w", err)
	}
	for name, claim := range map[string]*float64{"exp": c.Expiry, "nbf": c.NotBefore, "iat": c.IssuedAt} {
		if claim != nil && !jws.IsTime(*claim) {
			return c, fmt.Errorf("its claim %s is not a time", name)
		}
	}
	switch {
	case c.Expiry == nil:
		return c, errors.New("it has no expiry")
	case !now.Before(jws.At(*c.Expiry)):
		return c, fmt.Errorf("it expired at %s", clock.Stamp(jws.At(*c.Expiry)))
	case c.NotBefore != nil && now.Add(leeway).Before(jws.At(*c.NotBefore)):
		return c, fmt.Errorf("it is not valid before %s", clock.Stamp(jws.At(*c.NotBefore)))
	case c.IssuedAt != nil && now.Add(leeway).Before(jws.At(*c.IssuedAt)):
		return c, fmt.Errorf("it was issued in the future, at %s", clock.Stamp(jws.At(*c.IssuedAt)))
	}
	_, err := pki.ParseSPIFFEID(c.Subject)
	return c, err
}

// checkReply verifies a token of the authority, and returns it with its signer and its end.
func (s *Source) checkReply(ctx context.Context, o order, token ca.Token) (holding, error) {
	got, err := s.checkToken(ctx, o, token)
	if err != nil {
		return holding{}, &ca.Error{Reason: ca.Denied, Message: errReply.Error() + ": " + text.WithoutTokens(err.Error(), token), Err: errReply}
	}
	return got, nil
}

func (s *Source) checkToken(ctx context.Context, o order, token ca.Token) (got holding, err error) {
	parsed, err := parse(token)
	if err != nil {
		return got, err
	}
	if parsed.KeyID == "" {
		return got, errors.New("it names no key")
	}
	keys := s.await(ctx, parsed.KeyID, parsed.Algorithm)
	payload, err := parsed.Payload(keys)
	if err != nil {
		return got, err
	}
	now := s.cfg.Now()
	c, err := read(payload, now)
	if err != nil {
		return got, err
	}
	got = holding{token: token, signer: keys[0], ends: jws.At(*c.Expiry)} // each has a kid of its own
	switch audiences := slices.Compact(slices.Sorted(slices.Values(c.Audience))); {
	case c.Subject != o.id:
		return got, fmt.Errorf("its subject is %.256q, not %q", c.Subject, o.id)
	case !slices.Equal(audiences, o.audiences):
		return got, fmt.Errorf("its audiences are [%s], not those asked for", text.Clean(strings.Join(audiences, " ")))
	case got.ends.After(now.Add(s.cfg.TTL + leeway)):
		return got, fmt.Errorf("it lives until %s, longer than asked for", clock.Stamp(got.ends))
	case !got.ends.After(now.Add(leastLeft)):
		return got, fmt.Errorf("it ends at %s, too early to be used", clock.Stamp(got.ends))
	}
	return got, nil
}

// Validate judges a JWT-SVID by the standard: signed by one of the keys, of one of the trust
// domains, for the audience, and valid now. It returns the SPIFFE ID and all claims, as decoded by
// encoding/json. An error is [ca.ErrInvalid] or, while no keys are known, [ca.ErrUnavailable]; it
// does not quote the token.
func (s *Source) Validate(token ca.Token, audience string, trustDomains []string) (id string, claims map[string]any, err error) {
	p := s.published.Load()
	switch {
	case p == nil && s.missing.Load():
		return "", nil, ca.Errorf(ca.Unimplemented, "the authority signs no JWT-SVIDs")
	case p == nil:
		return "", nil, ca.Errorf(ca.Unavailable, "the keys of JWT-SVIDs are not known yet")
	case !isAudience(audience):
		return "", nil, ca.Errorf(ca.Invalid, "the audience is not 1 to %d printable bytes", maxAudience)
	}
	if id, claims, err = validate(token, audience, trustDomains, p.keys, s.cfg.Now()); err != nil {
		return "", nil, redact.Error(ca.Errorf(ca.Invalid, "the JWT-SVID is refused: %w", err), token)
	}
	return id, claims, nil
}

func domainOf(id string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(id, "spiffe://"), "/")
	return domain
}

func validate(token ca.Token, audience string, trustDomains []string, keys jws.Keys, now time.Time) (id string, all map[string]any, err error) {
	parsed, err := parse(token)
	if err != nil {
		return "", nil, err
	}
	payload, err := parsed.Payload(keys.Find(parsed.KeyID, parsed.Algorithm))
	if err != nil {
		return "", nil, err
	}
	c, err := read(payload, now)
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
