package secrets

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/cli"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// Whatever answers at the socket must neither clear the terminal nor forge a row.
func TestCertificateNamesAreEscaped(t *testing.T) {
	const hostile = "\x1b[2J\nforged"
	cert := certtest.SelfSigned(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: hostile}, DNSNames: []string{hostile}, NotAfter: time.Now().Add(time.Hour),
	}).Cert
	for _, kind := range []string{config.KeyPair, config.TrustBundle} {
		var out strings.Builder
		_, err := newPrinter(&out, "table").print([]secretShown{{Name: hostile, Kind: kind, Certificates: []certShown{showCert(cert)}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 2 || !strings.Contains(got, `\x1b[2J\nforged`) {
			t.Errorf("%s: %q", kind, got)
		}
	}
}

func TestJSONHasNothingThatATerminalActsOn(t *testing.T) {
	var out strings.Builder
	p := &printer{w: &out, json: true, seen: map[string]bool{}}
	subject := "CN=a\u009b2J\u202e\x7f"
	if _, err := p.one(secretShown{Name: "x", Certificates: []certShown{{Subject: subject}}}); err != nil {
		t.Fatal(err)
	}
	var got secretShown
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.Certificates[0].Subject != subject || strings.ContainsAny(out.String(), "\u009b\u202e\x7f") {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestTableFitsTheTerminal(t *testing.T) {
	now := time.Now()
	pair := secretShown{Time: now, Name: "spiffe://example.org/a/long/name", Kind: config.KeyPair, Certificates: []certShown{{
		Serial: "0123456789abcdef", Identities: []string{"spiffe://example.org/ns/default/sa/web", "web.example.org"}, NotAfter: now.Add(47 * time.Hour),
	}}}
	bundle := secretShown{Time: now, Name: "ROOTCA", Kind: config.TrustBundle, Certificates: []certShown{{
		Serial: "0123456789abcdef", Subject: "CN=Countersign self-signed root,O=Countersign", NotAfter: now.AddDate(10, 0, 1),
	}}}
	for _, width := range []int{20, 80, 100, 0} {
		var out strings.Builder
		p := newPrinter(&out, "table")
		p.width = width
		if _, err := p.print([]secretShown{pair, bundle}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(out.String(), "\n") {
			if width >= 80 && cli.Columns(line) > width {
				t.Errorf("%d columns of %d: %q", cli.Columns(line), width, line)
			}
		}
		if marked := strings.Contains(out.String(), "…"); marked != (width > 0) {
			t.Errorf("%d columns: a mark where text is cut: %t\n%s", width, marked, &out)
		}
	}
}

func TestFilterShowsRowsThatContainIt(t *testing.T) {
	now := time.Now()
	secrets := []secretShown{
		{Time: now, Name: "a.shop.example.org", Kind: config.KeyPair, Key: "KEY-A\n", Certificates: []certShown{{Identities: []string{"a.shop.example.org"}, NotAfter: now.Add(time.Hour)}}},
		{Time: now, Name: "db", Kind: config.KeyPair, Certificates: []certShown{{NotAfter: now.Add(-time.Hour)}}},
		{Time: now, Name: "ROOTCA", Kind: config.TrustBundle, Certificates: []certShown{{Subject: "CN=one", NotAfter: now}, {Subject: "CN=two", NotAfter: now}}},
	}
	for filter, c := range map[string]struct {
		shown, again int // at first, and once all have rotated
		has, lacks   string
	}{
		"":         {3, 3, "NAME,a.shop,KEY-A,db,CN=one,CN=two", "ERROR"},
		"SHOP":     {1, 1, "NAME,a.shop,KEY-A", "db,ROOTCA"},
		"expired":  {1, 1, "db", "shop,KEY-A,ROOTCA"},
		"rotated":  {0, 3, "shop,db,CN=one", "held"},
		"cn=two":   {1, 1, "CN=two", "CN=one,db"},
		"no match": {0, 0, "", "NAME,KEY-A"},
	} {
		var out strings.Builder
		p := newPrinter(&out, "table")
		p.filter = cli.Filter(filter)
		for _, want := range []int{c.shown, c.again} {
			if shown, err := p.print(secrets); err != nil || shown != want {
				t.Errorf("%q: %d, %v", filter, shown, err)
			}
		}
		for want := range strings.SplitSeq(c.has, ",") {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q does not show %s:\n%s", filter, want, &out)
			}
		}
		for other := range strings.SplitSeq(c.lacks, ",") {
			if strings.Contains(out.String(), other) {
				t.Errorf("%q shows %s:\n%s", filter, other, &out)
			}
		}
	}
}
