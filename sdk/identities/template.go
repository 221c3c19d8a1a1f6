package identities

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxClaims bounds a token's claims, in bytes.
const maxClaims = 16 << 10

// Template is a SPIFFE ID with placeholders for claims of a token, such as
//
//	spiffe://cluster.local/ns/{kubernetes.io/namespace}/sa/{kubernetes.io/serviceaccount/name}
//
// A slash is part of a claim's name or descends into an object; a token in which both are
// there is refused. {sub:2} is the third colon-separated part of a claim. A value fills
// part of one path segment and cannot end it.
type Template struct {
	texts  []string // one more than claims
	claims []place
}

// place is a claim and the index of its part; -1 means the whole claim.
type place struct {
	path string
	part int
}

// ParseTemplate parses a template and tries it with sample values.
func ParseTemplate(text string) (*Template, error) {
	t := &Template{}
	rest := text
	for {
		before, after, found := strings.Cut(rest, "{")
		t.texts = append(t.texts, before)
		if !found {
			break
		}
		name, after, found := strings.Cut(after, "}")
		if !found || name == "" {
			return nil, fmt.Errorf("the SPIFFE ID %.256q has a { without a claim and its }", text)
		}
		p, err := placeOf(name)
		if err != nil {
			return nil, fmt.Errorf("the SPIFFE ID %.256q: %w", text, err)
		}
		t.claims = append(t.claims, p)
		rest = after
	}
	return t, t.try(text)
}

func placeOf(name string) (place, error) {
	path, part, found := strings.Cut(name, ":")
	if !found {
		return place{name, -1}, nil
	}
	if len(part) != 1 || part[0] < '0' || part[0] > '9' || path == "" {
		return place{}, fmt.Errorf("{%.64s} is not a claim: after the colon comes the number of a part, 0 to 9", name)
	}
	return place{path, int(part[0] - '0')}, nil
}

// try builds an ID with a sample value in each place.
func (t *Template) try(text string) error {
	switch id, err := t.fill(func(place) (string, error) { return "x", nil }); {
	case len(t.claims) == 0:
		return fmt.Errorf("the SPIFFE ID %.256q has no claim in it: all tokens would be one identity's", text)
	case strings.Contains(trustDomain(t.texts[0]), "{") || !strings.Contains(strings.TrimPrefix(t.texts[0], "spiffe://"), "/"):
		return fmt.Errorf("the SPIFFE ID %.256q takes its trust domain from a claim: write it out", text)
	case err != nil:
		return err
	default:
		_, err := pki.ParseSPIFFEID(id)
		return err
	}
}

func trustDomain(text string) string {
	domain, _, _ := strings.Cut(strings.TrimPrefix(text, "spiffe://"), "/")
	return domain
}

// Claimed returns what a token claims, for [Identify]. It verifies nothing. The token must
// be a JWT (RFC 7519) in compact form.
func (t *Template) Claimed(token ca.Token) (Claim, error) {
	claims, err := claimsOf(token)
	if err != nil {
		return Claim{}, err
	}
	id, err := t.ID(claims)
	if err != nil {
		return Claim{}, err
	}
	return Claim{SPIFFEID: id, Expiry: expiryOf(claims)}, nil
}

// ID returns the SPIFFE ID for claims that the caller has verified.
func (t *Template) ID(claims map[string]any) (string, error) {
	id, err := t.fill(func(p place) (string, error) {
		value, err := textAt(claims, p.path)
		if err != nil {
			return "", err
		}
		if p.part >= 0 {
			parts := strings.Split(value, ":")
			if p.part >= len(parts) {
				return "", fmt.Errorf("the claim %q has %d parts, part %d is needed", p.path, len(parts), p.part)
			}
			value = parts[p.part]
		}
		if !segment(value) {
			return "", fmt.Errorf("the claim %q cannot be part of a SPIFFE ID's path: use letters, digits, '.', '-' and '_'", p.path)
		}
		return value, nil
	})
	if err == nil {
		_, err = pki.ParseSPIFFEID(id)
	}
	return id, err
}

func (t *Template) fill(value func(place) (string, error)) (string, error) {
	var id strings.Builder
	for i, text := range t.texts {
		id.WriteString(text)
		if i < len(t.claims) {
			v, err := value(t.claims[i])
			if err != nil {
				return "", err
			}
			id.WriteString(v)
		}
	}
	return id.String(), nil
}

// segment reports whether a value stays within its path segment: one with a slash could
// name another identity.
func segment(value string) bool {
	return value != "" && !strings.ContainsFunc(value, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
	})
}

// textAt returns the text of a claim. It refuses a claim that is there both flat and
// nested: another reader of the token may choose the other value.
func textAt(claims map[string]any, path string) (string, error) {
	values := find(claims, path)
	if len(values) > 1 {
		return "", fmt.Errorf("the claim %q is there more than once, flat and nested", path)
	}
	if len(values) == 1 {
		if value, ok := values[0].(string); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("the claim %q is missing or no text", path)
}

// find returns the values at path: a claim of exactly that name, and nested ones.
func find(claims map[string]any, path string) (values []any) {
	if value, ok := claims[path]; ok {
		values = append(values, value)
	}
	for i, c := range path {
		if below, ok := claims[path[:i]].(map[string]any); ok && c == '/' {
			values = append(values, find(below, path[i+1:])...)
		}
	}
	return values
}

var errNoJWT = errors.New("not a JWT")

// claimsOf decodes the payload of a JWT. The error never quotes the token.
func claimsOf(token ca.Token) (map[string]any, error) {
	parts := strings.Split(token.Reveal(), ".")
	if len(parts) != 3 || len(parts[1]) > maxClaims {
		return nil, errNoJWT
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, errNoJWT
	}
	var claims map[string]any
	if err := json.Unmarshal(text, &claims); err != nil {
		return nil, errNoJWT
	}
	return claims, nil
}

// expiryOf returns the claim exp (RFC 7519, section 4.1.4), or the zero time if missing or
// out of range.
func expiryOf(claims map[string]any) time.Time {
	const farthest = 1 << 40 // about 35,000 years
	seconds, ok := claims["exp"].(float64)
	if !ok || !(seconds > 0 && seconds < farthest) {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}
