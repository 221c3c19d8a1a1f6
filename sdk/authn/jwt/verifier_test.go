package jwt

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const issuer = "https://issuer.example"

func TestTokenOfEachAlgorithmIsVerified(t *testing.T) {
	v := fixed(t)
	keyOf := map[string]string{"RS": "rsa", "PS": "rsa", "ES256": "p256", "ES384": "p384", "ES512": "p521", "EdDSA": "ed"}
	for _, algorithm := range known {
		id := keyOf[string(algorithm)] + keyOf[string(algorithm)[:2]]
		got, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()[id], id, algorithm, claimsOf(issuer))))
		want := authn.Identity{
			Kind: authn.ByJWT, SPIFFEID: "spiffe://cluster.local/ns/shop/sa/web", Namespace: "shop", ServiceAccount: "web",
			Issuer: issuer, Expiry: now.Add(time.Hour + defaultLeeway).Local(),
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", algorithm, got, err)
		}
	}
}

func TestSubjectIsServiceAccountOrSPIFFEID(t *testing.T) {
	v := fixed(t)
	bound := claimSet{"kubernetes.io": map[string]any{
		"namespace": "shop", "node": map[string]string{"name": "node-1", "uid": "u3"},
		"pod": map[string]string{"name": "web-0", "uid": "u2"}, "serviceaccount": map[string]string{"name": "web", "uid": "u1"},
	}}
	got, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer, bound))))
	if err != nil || got.Pod != "web-0" || got.PodUID != "u2" || got.Node != "node-1" || got.ServiceAccountUID != "u1" {
		t.Errorf("bound to a pod: %+v, %v", got, err)
	}
	named := claimSet{"sub": "spiffe://example.org/ns/shop/sa/api"}
	got, err = v.Authenticate(t.Context(), with(sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer, named))))
	if err != nil || got.SPIFFEID != "spiffe://example.org/ns/shop/sa/api" || got.ServiceAccount != "api" {
		t.Errorf("a SPIFFE ID: %+v, %v", got, err)
	}
}

func TestSPIFFEIDIsMadeOfVerifiedClaims(t *testing.T) {
	cfg := fixed(t).cfg
	cfg.ServiceAccounts, cfg.TrustDomain = "", ""
	cfg.SPIFFEID = func(claims map[string]any) (string, error) {
		team, ok := claims["team"].(string)
		if !ok {
			return "", errors.New("there is no team")
		}
		return "spiffe://cluster.local/" + team, nil
	}
	v := verifier(t, cfg)
	got, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer, claimSet{"sub": "7", "team": "shop"}))))
	if err != nil || got.SPIFFEID != "spiffe://cluster.local/shop" || got.Expiry.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	for _, claims := range []claimSet{{"team": nil}, {"team": "a b"}, {"team": "shop", "aud": "vault"}, {"team": "shop", "exp": 1}} {
		if _, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer, claims)))); !errors.Is(err, authn.ErrRefused) {
			t.Errorf("%v: %v", claims, err)
		}
	}
	cfg.TrustDomain = "cluster.local"
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "cannot be combined") {
		t.Errorf("two ways to name a subject: %v", err)
	}
}

func TestUnfitClaimsAreRefused(t *testing.T) {
	v := fixed(t)
	for name, test := range map[string]struct {
		change claimSet
		says   string
	}{
		"for another audience":         {claimSet{"aud": "vault"}, "audiences are [vault]"},
		"for two others":               {claimSet{"aud": []string{"vault", "istio-ca "}}, "audiences are [vault"},
		"for no audience":              {claimSet{"aud": nil}, "audiences are []"},
		"for an empty audience":        {claimSet{"aud": ""}, "audiences are []"},
		"an audience that is a number": {claimSet{"aud": 7}, "malformed token"},
		"expired":                      {claimSet{"exp": now.Add(-time.Minute).Unix()}, "expired at 2026-07-01T11:59:00Z"},
		"expired by the leeway":        {claimSet{"exp": now.Add(-defaultLeeway).Unix()}, "expired at"},
		"without end":                  {claimSet{"exp": nil}, "no expiry"},
		"with an end that is null":     {claimSet{"exp": []byte(nil)}, "no expiry"},
		"an end in words":              {claimSet{"exp": "2030-01-01"}, "malformed token"},
		"an end in the year 10^300":    {claimSet{"exp": 1e300}, "exp is not a time"},
		"an end before all times":      {claimSet{"exp": -1}, "exp is not a time"},
		"not yet valid":                {claimSet{"nbf": now.Add(time.Minute).Unix()}, "not valid before 2026-07-01T12:01:00Z"},
		"a beginning far away":         {claimSet{"nbf": 1e18}, "nbf is not a time"},
		"issued in the future":         {claimSet{"iat": now.Add(time.Minute).Unix()}, "in the future"},
		"without subject":              {claimSet{"sub": nil}, "not a service account"},
		"a user":                       {claimSet{"sub": "admin"}, "not a service account"},
		"a subject that is a path":     {claimSet{"sub": "system:serviceaccount:a/sa/b:c"}, "not a service account"},
		"of another trust domain":      {claimSet{"sub": "spiffe://other.example/web"}, "not in a trust domain"},
		"of a domain that looks alike": {claimSet{"sub": "spiffe://example.org.evil.example/web"}, "not in a trust domain"},
		"a trust domain alone":         {claimSet{"sub": "spiffe://example.org"}, "needs a path"},
		"dots in the path":             {claimSet{"sub": "spiffe://example.org/ns/../admin"}, "path segment"},
		"a subject that is a list":     {claimSet{"sub": []string{subject}}, "malformed token"},
		"bound to another account": {claimSet{"kubernetes.io": map[string]any{
			"namespace": "shop", "serviceaccount": map[string]string{"name": "api"}}}, "is bound to"},
		"bound to another namespace": {claimSet{"kubernetes.io": map[string]any{"namespace": "kube-system"}}, "is bound to"},
	} {
		token := sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer, test.change))
		mustRefuse(t, v, name, token, test.says)
	}
}

// mustRefuse wants a refusal with its reason, and without the token.
func mustRefuse(t *testing.T, v *Verifier, name string, token ca.Token, says string) {
	t.Helper()
	got, err := v.Authenticate(t.Context(), with(token))
	if !errors.Is(err, authn.ErrRefused) || got != (authn.Identity{}) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %+v, %v; want a refusal with %q", name, got, err, says)
		return
	}
	if text := err.Error(); len(text) > 1000 || strings.Contains(text, token.Reveal()[:20]) {
		t.Errorf("%s: the refusal is %q", name, text)
	}
}

func TestLeewayToleratesClockSkew(t *testing.T) {
	v := fixed(t)
	almost := defaultLeeway - time.Second
	for name, change := range map[string]claimSet{
		"just ended":       {"exp": now.Add(-almost).Unix()},
		"about to begin":   {"nbf": now.Add(almost).Unix()},
		"issued by a fast": {"iat": now.Add(almost).Unix()},
		"with a fraction":  {"exp": float64(now.Unix()) + 0.5},
		"nothing but exp":  {"nbf": nil, "iat": nil},
		"one audience":     {"aud": audience1},
		"two audiences":    {"aud": []string{"vault", audience1}},
	} {
		got, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer, change))))
		if err != nil || !got.Expiry.After(now) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestTokenOfOtherIssuerIsNotOurs(t *testing.T) {
	v := fixed(t)
	v.keys.fetch = nil // a look at the keys would panic
	for _, iss := range []any{nil, "", issuer + "/", "https://Issuer.example", "http://issuer.example", issuer + ":443", "https://issuer.example.evil.example", []string{issuer}, 7} {
		token := sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(issuer, claimSet{"iss": iss}))
		if _, err := v.Authenticate(t.Context(), with(token)); !errors.Is(err, authn.ErrNotMine) {
			t.Errorf("%v: %v", iss, err)
		}
	}
	for _, token := range []ca.Token{"", "x", "a.b", "a.b.c", "....", "a.b.c.d.e", ca.Token("x." + b64([]byte("[]")) + ".x"), ca.Token("x." + b64([]byte(strings.Repeat("[", 9000))) + ".x")} {
		if _, err := v.Authenticate(t.Context(), with(token)); !errors.Is(err, authn.ErrNotMine) {
			t.Errorf("%.40q: %v", token.Reveal(), err)
		}
	}
}
