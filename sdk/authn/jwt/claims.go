package jwt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4/json"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/authn"
)

// claims are the claims in use (RFC 7519, section 4.1), and those Kubernetes adds.
type claims struct {
	Issuer     string       `json:"iss"`
	Subject    string       `json:"sub"`
	Audience   jws.Audience `json:"aud"`
	Expiry     *float64     `json:"exp"`
	NotBefore  *float64     `json:"nbf"`
	IssuedAt   *float64     `json:"iat"`
	Kubernetes kubernetes   `json:"kubernetes.io"`
}

type kubernetes struct {
	Namespace string `json:"namespace"`
	Account   object `json:"serviceaccount"`
	Pod       object `json:"pod"`
	Node      object `json:"node"`
}

type object struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// identity reads verified claims with go-jose's decoder, which is case-sensitive and
// rejects duplicate names; the standard library takes the last.
func (v *Verifier) identity(payload []byte) (authn.Identity, error) {
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "malformed token claims: %w", err)
	}
	if err := v.check(c); err != nil {
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "%w", err)
	}
	id, err := v.owner(c, payload)
	if err != nil {
		return authn.Identity{}, authn.Errorf(authn.ErrRefused, "the token's subject: %w", err)
	}
	id.Kind, id.Issuer, id.Expiry = authn.ByJWT, c.Issuer, jws.At(*c.Expiry).Add(v.cfg.Leeway)
	return id, nil
}

func (v *Verifier) check(c claims) error {
	for _, claim := range []struct {
		name string
		time *float64
	}{{"exp", c.Expiry}, {"nbf", c.NotBefore}, {"iat", c.IssuedAt}} {
		if claim.time != nil && !jws.IsTime(*claim.time) {
			return fmt.Errorf("the token's claim %s is not a time", claim.name)
		}
	}
	now, leeway := v.cfg.Now(), v.cfg.Leeway
	switch {
	case c.Issuer != v.cfg.Issuer:
		return fmt.Errorf("the token's issuer is %.256q, not %q", c.Issuer, v.cfg.Issuer)
	case !slices.ContainsFunc(c.Audience, func(a string) bool { return slices.Contains(v.cfg.Audiences, a) }):
		return fmt.Errorf("the token's audiences are [%s], must include one of %q", text.Clean(strings.Join(c.Audience, " ")), v.cfg.Audiences)
	case c.Expiry == nil:
		return errors.New("the token has no expiry: the claim exp is required")
	case !now.Before(jws.At(*c.Expiry).Add(leeway)):
		return fmt.Errorf("the token expired at %s", stamp(*c.Expiry))
	case c.NotBefore != nil && now.Add(leeway).Before(jws.At(*c.NotBefore)):
		return fmt.Errorf("the token is not valid before %s", stamp(*c.NotBefore))
	case c.IssuedAt != nil && now.Add(leeway).Before(jws.At(*c.IssuedAt)):
		return fmt.Errorf("the token was issued in the future, at %s", stamp(*c.IssuedAt))
	}
	return nil
}

// owner derives the identity from all claims if so configured, else from the subject.
func (v *Verifier) owner(c claims, payload []byte) (authn.Identity, error) {
	if v.cfg.SPIFFEID == nil {
		return v.subject(c)
	}
	var all map[string]any
	if err := json.Unmarshal(payload, &all); err != nil {
		return authn.Identity{}, err
	}
	text, err := v.cfg.SPIFFEID(all)
	if err != nil {
		return authn.Identity{}, err
	}
	return authn.OfSPIFFEID(text)
}

// subject derives the identity from the claim sub.
func (v *Verifier) subject(c claims) (authn.Identity, error) {
	if strings.HasPrefix(c.Subject, "spiffe://") {
		return v.spiffeID(c.Subject)
	}
	if v.template.IsZero() {
		return authn.Identity{}, fmt.Errorf("%.256q is not a SPIFFE ID in %s", c.Subject, v.cfg.TrustDomain)
	}
	id, err := v.template.Identity(c.Subject)
	if err != nil {
		return authn.Identity{}, err
	}
	bound := c.Kubernetes
	if bound.Namespace != "" && bound.Namespace != id.Namespace || bound.Account.Name != "" && bound.Account.Name != id.ServiceAccount {
		return authn.Identity{}, fmt.Errorf("%q does not match the service account %.256q in %.256q that the token is bound to", c.Subject, bound.Account.Name, bound.Namespace)
	}
	id.ServiceAccountUID = bound.Account.UID
	id.Pod, id.PodUID, id.Node = bound.Pod.Name, bound.Pod.UID, bound.Node.Name
	return id, nil
}

func (v *Verifier) spiffeID(subject string) (authn.Identity, error) {
	domain, _, _ := strings.Cut(strings.TrimPrefix(subject, "spiffe://"), "/")
	if v.cfg.TrustDomain == "" || domain != v.cfg.TrustDomain {
		return authn.Identity{}, fmt.Errorf("%.256q is not in a trust domain allowed for this issuer", subject)
	}
	return authn.OfSPIFFEID(subject)
}

func stamp(seconds float64) string { return clock.Stamp(jws.At(seconds)) }
