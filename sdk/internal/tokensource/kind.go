package tokensource

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
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// Leeway is the tolerated difference of clocks.
	Leeway = 30 * time.Second
	// MaxToken bounds a token, in bytes.
	MaxToken    = 16 << 10
	keyPatience = 5 * time.Second
)

// Kind is a kind of token.
type Kind struct {
	// Name is used in texts, as in "JWT-SVID", and Keys names its keys there.
	Name, Keys string
	// Span names the trace of a signature.
	Span string
	// Types are the values of the header typ that it may have; an empty one may be missing.
	Types []string
	// Jitter is how far the half of a life at which a token is replaced is spread, of that life.
	Jitter float64
	// Use is the parameter use of its published keys, as served. ParseKeys reads a JWK set.
	Use       string
	ParseKeys func(jwks []byte) (jws.Keys, error)
}

// DefaultTTL is the lifetime to ask for.
const DefaultTTL = 5 * time.Minute

const minTTL, maxTTL = 30 * time.Second, time.Hour

// CheckTTL returns an error if a lifetime may not be asked for. Zero is the default.
func CheckTTL(ttl time.Duration) error {
	if ttl != 0 && (ttl < minTTL || ttl > maxTTL) {
		return fmt.Errorf("must be %s to %s", minTTL, maxTTL)
	}
	return nil
}

// Parse reads a token of a stranger up to its signature.
func (k Kind) Parse(token ca.Token) (jws.Token, error) {
	// The base64 decoder skips line breaks.
	if n := len(token); n == 0 || n > MaxToken || strings.ContainsAny(token.Reveal(), "\r\n") {
		return jws.Token{}, fmt.Errorf("not a %s of 1 to %d bytes", k.Name, MaxToken)
	}
	parsed, err := jws.Parse(token.Reveal(), jws.SVIDAlgorithms)
	if err != nil {
		return parsed, err
	}
	if kind := parsed.Type(); !slices.Contains(k.Types, kind) {
		return parsed, fmt.Errorf("its type is %.64q; allowed: %s", kind, strings.Join(k.named(), " and "))
	}
	return parsed, nil
}

func (k Kind) named() []string {
	return slices.DeleteFunc(slices.Clone(k.Types), func(kind string) bool { return kind == "" })
}

// Claims are those that are read of each token.
type Claims struct {
	Subject   string       `json:"sub"`
	Audience  jws.Audience `json:"aud"`
	Expiry    *float64     `json:"exp"`
	NotBefore *float64     `json:"nbf"`
	IssuedAt  *float64     `json:"iat"`
}

// Ends is when the token expires.
func (c Claims) Ends() time.Time { return jws.At(*c.Expiry) }

// ReadClaims returns the claims of a payload whose signature is verified, if they are of now and the
// subject is a SPIFFE ID.
func ReadClaims(payload []byte, now time.Time) (Claims, error) {
	var c Claims
	// This decoder is case-sensitive and rejects duplicate names.
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, fmt.Errorf("its claims are malformed: %w", err)
	}
	if err := c.CheckTimes(now, 0); err != nil {
		return c, err
	}
	_, err := pki.ParseSPIFFEID(c.Subject)
	return c, err
}

// CheckTimes returns an error unless the claims are of now, or have expired within grace.
func (c Claims) CheckTimes(now time.Time, grace time.Duration) error {
	for name, claim := range map[string]*float64{"exp": c.Expiry, "nbf": c.NotBefore, "iat": c.IssuedAt} {
		if claim != nil && !jws.IsTime(*claim) {
			return fmt.Errorf("its claim %s is not a time", name)
		}
	}
	switch {
	case c.Expiry == nil:
		return errors.New("it has no expiry")
	case !now.Before(c.Ends().Add(grace)):
		return fmt.Errorf("it expired at %s", clock.Stamp(c.Ends()))
	case c.NotBefore != nil && now.Add(Leeway).Before(jws.At(*c.NotBefore)):
		return fmt.Errorf("it is not valid before %s", clock.Stamp(jws.At(*c.NotBefore)))
	case c.IssuedAt != nil && now.Add(Leeway).Before(jws.At(*c.IssuedAt)):
		return fmt.Errorf("it was issued in the future, at %s", clock.Stamp(jws.At(*c.IssuedAt)))
	}
	return nil
}

// checkReply verifies a token of the authority, and returns it with its signer and its end. A token
// that cannot be verified at the moment is [ca.ErrUnavailable], one that fails our checks [ca.ErrInternal]:
// the authority has not denied the caller a token.
func (s *Source) checkReply(ctx context.Context, o Order, r Reply) (holding, error) {
	got, err := s.checkToken(ctx, o, r)
	if _, cannot := errors.AsType[*ca.Error](err); cannot {
		return holding{}, err
	}
	if err != nil {
		return holding{}, &ca.Error{Reason: ca.Internal, Message: fmt.Sprintf("the authority's %s fails our checks: %s", s.cfg.Kind.Name, text.WithoutTokens(err.Error(), r.Token)), Err: errReply}
	}
	return got, nil
}

func (s *Source) checkToken(ctx context.Context, o Order, r Reply) (got holding, err error) {
	parsed, err := s.cfg.Kind.Parse(r.Token)
	if err != nil {
		return got, err
	}
	if parsed.KeyID == "" {
		return got, errors.New("it names no key")
	}
	keys := s.await(ctx, parsed.KeyID, parsed.Algorithm)
	if len(keys) == 0 {
		err = s.unfollowed()
	}
	if err != nil {
		return got, err
	}
	payload, err := parsed.Payload(keys)
	if err != nil {
		return got, err
	}
	now := s.cfg.Now()
	c, err := ReadClaims(payload, now)
	if err != nil {
		return got, err
	}
	r.Ends = c.Ends()
	got = holding{reply: r, signer: keys[0]} // each has a kid of its own
	switch {
	case c.Subject != o.ID:
		return got, fmt.Errorf("its subject is %.256q, not %q", c.Subject, o.ID)
	case got.reply.Ends.After(now.Add(s.cfg.TTL + Leeway)):
		return got, fmt.Errorf("it lives until %s, longer than asked for", clock.Stamp(got.reply.Ends))
	case !got.reply.Ends.After(now.Add(leastLeft)):
		return got, fmt.Errorf("it ends at %s, too early to be used", clock.Stamp(got.reply.Ends))
	}
	return got, s.cfg.Check(o, r, c, payload)
}

// renewal is when a token is replaced that was asked for at begins.
func (k Kind) renewal(begins, ends time.Time) time.Time {
	return rotation.Renewal(0.5, k.Jitter, begins, ends)
}
