package pki

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
)

func TestSPIFFEIDFollowsStandard(t *testing.T) {
	for name, c := range map[string]struct{ id, fault string }{
		"istio":            {"spiffe://cluster.local/ns/default/sa/web", ""},
		"upper-case path":  {"spiffe://example.org/Web_1.2-x", ""},
		"other scheme":     {"https://example.org/web", "must begin with spiffe://"},
		"empty domain":     {"spiffe:///web", "trust domain is empty"},
		"upper-case host":  {"spiffe://Example.org/web", "lower-case"},
		"port":             {"spiffe://example.org:443/web", "lower-case"},
		"user":             {"spiffe://me@example.org/web", "lower-case"},
		"no path":          {"spiffe://example.org", "needs a path"},
		"trailing slash":   {"spiffe://example.org/web/", "segment is empty"},
		"dot segment":      {"spiffe://example.org/../web", "'.' or '..'"},
		"query":            {"spiffe://example.org/web?x=1", "a path has"},
		"fragment":         {"spiffe://example.org/web#x", "a path has"},
		"percent encoding": {"spiffe://example.org/%41", "a path has"},
		"not ascii":        {"spiffe://example.org/wéb", "a path has"},
		"control":          {"spiffe://example.org/w\x00b", "a path has"},
		"too long":         {"spiffe://example.org/" + strings.Repeat("a", 2048), "longer than 2048"},
		"long domain":      {"spiffe://" + strings.Repeat("a", 256) + "/web", "longer than 255"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSPIFFEID(c.id)
			if c.fault == "" {
				if err != nil || got.String() != c.id {
					t.Fatalf("got %v, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Fatalf("got error %v, want one with %q", err, c.fault)
			}
			if len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestIdentityIgnoresOrderOfNames(t *testing.T) {
	a := mustIdentity(t, "", []string{"b.example", "A.example", "b.example"}, []string{"::1", "10.0.0.1", "::ffff:10.0.0.1"})
	b := mustIdentity(t, "", []string{"a.example", "b.example"}, []string{"10.0.0.1", "::1"})
	if !a.Equal(b) {
		t.Errorf("%v is not %v", a, b)
	}
	if a.Equal(mustIdentity(t, "", []string{"a.example"}, nil)) {
		t.Error("an identity of fewer names is equal")
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	for name, names := range map[string]struct{ dns, ips []string }{
		"empty label":     {dns: []string{"a..example"}},
		"space":           {dns: []string{"a example"}},
		"inner wildcard":  {dns: []string{"a.*.example"}},
		"leading hyphen":  {dns: []string{"-a.example"}},
		"too long":        {dns: []string{strings.Repeat("a.", 130) + "example"}},
		"no address":      {ips: []string{"10.0.0"}},
		"address zone":    {ips: []string{"fe80::1%eth0"}},
		"too many of all": {dns: strings.Split(strings.Repeat("a.example,", 101)+"a.example", ",")},
	} {
		if id, err := NewIdentity("", names.dns, names.ips); err == nil {
			t.Errorf("%s: got %v, want an error", name, id)
		}
	}
}

func TestCertificateWithForeignNamesHasNoIdentity(t *testing.T) {
	uri := func(s string) *url.URL { u, _ := url.Parse(s); return u }
	for name, cert := range map[string]*x509.Certificate{
		"two URIs":      {URIs: []*url.URL{uri("spiffe://a.example/x"), uri("spiffe://a.example/y")}},
		"another URI":   {URIs: []*url.URL{uri("https://a.example/x")}},
		"e-mail":        {EmailAddresses: []string{"a@example.org"}},
		"encoded slash": {URIs: []*url.URL{uri("spiffe://a.example/x%2Fy")}},
	} {
		if id, err := IdentityOf(cert); err == nil {
			t.Errorf("%s: got %v, want an error", name, id)
		}
	}
}

func mustIdentity(t *testing.T, spiffeID string, dns, ips []string) Identity {
	t.Helper()
	id, err := NewIdentity(spiffeID, dns, ips)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
