package identities_test

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
)

const kubernetes = "spiffe://cluster.local/ns/{kubernetes.io/namespace}/sa/{kubernetes.io/serviceaccount/name}"

func jwt(claims string) ca.Token {
	return ca.Token("eyJhbGciOiJub25lIn0." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl")
}

func TestTemplateMakesSPIFFEIDFromClaims(t *testing.T) {
	for name, c := range map[string]struct{ template, claims, want string }{
		"a projected token": {kubernetes, `{"kubernetes.io":{"namespace":"shop","serviceaccount":{"name":"web","uid":"1"}}}`, "spiffe://cluster.local/ns/shop/sa/web"},
		"a subject's parts": {"spiffe://td/ns/{sub:2}/sa/{sub:3}", `{"sub":"system:serviceaccount:shop:web"}`, "spiffe://td/ns/shop/sa/web"},
		"a claim with a slash in its name": {
			"spiffe://td/{kubernetes.io/serviceaccount/namespace}", `{"kubernetes.io/serviceaccount/namespace":"shop"}`, "spiffe://td/shop",
		},
		"within a segment": {"spiffe://td/job-{sub}.x", `{"sub":"a_B-1"}`, "spiffe://td/job-a_B-1.x"},
	} {
		tpl, err := identities.ParseTemplate(c.template)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tpl.Claimed(jwt(c.claims)); err != nil || got.SPIFFEID != c.want {
			t.Errorf("%s: got %q, %v; want %q", name, got.SPIFFEID, err, c.want)
		}
	}
}

// Another reader of the token may choose the other value.
func TestClaimBothFlatAndNestedIsRefused(t *testing.T) {
	for name, claims := range map[string]string{
		"whole path":       `{"a/b/c":"x","a":{"b":{"c":"y"}}}`,
		"same value":       `{"a/b/c":"x","a":{"b":{"c":"x"}}}`,
		"null beside text": `{"a/b/c":null,"a":{"b":{"c":"x"}}}`,
		"flat at the end":  `{"a":{"b/c":"x","b":{"c":"y"}}}`,
		"flat at the head": `{"a/b":{"c":"x"},"a":{"b":{"c":"y"}}}`,
	} {
		tpl, err := identities.ParseTemplate("spiffe://td/{a/b/c}")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tpl.Claimed(jwt(claims)); err == nil || !strings.Contains(err.Error(), `"a/b/c" is there more than once`) {
			t.Errorf("%s: got %q, %v", name, got.SPIFFEID, err)
		}
	}
}

// A claim must not reach beyond its own segment.
func TestClaimStaysInItsSegment(t *testing.T) {
	tpl, err := identities.ParseTemplate(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{
		`"shop/sa/db/x"`, `""`, `".."`, `"."`, `"a%2fb"`, `"a b"`, `"ä"`, `"a\u0000"`, `"a?b"`, `"a#b"`, `1`, `null`, `["shop"]`, `{"a":"b"}`, `"{sub}/"`,
	} {
		claims := `{"sub":"x","kubernetes.io":{"namespace":` + namespace + `,"serviceaccount":{"name":"web"}}}`
		got, err := tpl.Claimed(jwt(claims))
		if err == nil {
			t.Errorf("%s became %q", namespace, got.SPIFFEID)
		}
	}
}

func TestExpiryClaimIsRead(t *testing.T) {
	tpl, err := identities.ParseTemplate("spiffe://td/{sub}")
	if err != nil {
		t.Fatal(err)
	}
	for claims, want := range map[string]time.Time{
		`{"sub":"a","exp":1700000000}`:   time.Unix(1700000000, 0),
		`{"sub":"a","exp":1700000000.5}`: time.Unix(1700000000, 0),
		`{"sub":"a"}`:                    {},
		`{"sub":"a","exp":"soon"}`:       {},
		`{"sub":"a","exp":1e300}`:        {},
		`{"sub":"a","exp":-5}`:           {},
	} {
		got, err := tpl.Claimed(jwt(claims))
		if err != nil || !got.Expiry.Equal(want) {
			t.Errorf("%s: got %v, %v", claims, got.Expiry, err)
		}
	}
}

func TestNonJWTClaimsNothing(t *testing.T) {
	tpl, err := identities.ParseTemplate("spiffe://td/{sub}")
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []ca.Token{"", "opaque", "a.b", "a.b.c", "a.e30.c.d", "a." + ca.Token(strings.Repeat("A", 20_000)) + ".c", "a.bnVsbA.c", "a.W10.c"} {
		got, err := tpl.Claimed(token)
		if err == nil {
			t.Errorf("a token of %d bytes claims %q", len(token), got.SPIFFEID)
		} else if len(token) > 3 && strings.Contains(err.Error(), token.Reveal()) {
			t.Errorf("the error quotes the token: %v", err)
		}
	}
}

func TestInvalidTemplateIsRefused(t *testing.T) {
	for template, words := range map[string]string{
		"spiffe://td/web":       "no claim in it",
		"spiffe://{td}/web":     "takes its trust domain from a claim",
		"spiffe://a{td}/{sub}":  "takes its trust domain from a claim",
		"spiffe://td/{sub":      "without a claim and its }",
		"spiffe://td/{}":        "without a claim and its }",
		"spiffe://td/{sub:x}":   "number of a part",
		"spiffe://td/{:1}":      "number of a part",
		"https://td/{sub}":      "it must begin with spiffe://",
		"spiffe://td/a b/{sub}": "a path has letters",
		"spiffe://td/{sub}/":    "a path segment is empty",
		"spiffe://TD/{sub}":     "a trust domain has lower-case letters",
	} {
		if _, err := identities.ParseTemplate(template); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v, want %q", template, err, words)
		}
	}
}

func FuzzClaimsStayInTheirSegment(f *testing.F) {
	f.Add(`{"kubernetes.io":{"namespace":"shop","serviceaccount":{"name":"web"}}}`)
	f.Add(`{"kubernetes.io":{"namespace":"shop/sa/x"}}`)
	f.Add(`{"kubernetes.io/namespace":"a"}`)
	tpl, err := identities.ParseTemplate(kubernetes)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, claims string) {
		got, err := tpl.Claimed(jwt(claims))
		if err == nil && strings.Count(got.SPIFFEID, "/") != 6 {
			t.Errorf("%s became %q", claims, got.SPIFFEID)
		}
	})
}
