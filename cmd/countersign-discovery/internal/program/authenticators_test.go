package program

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/oidctest"
)

const (
	gateway = "spiffe://cluster.local/ns/shop/sa/gateway"
	jwtUser = "spiffe://example.org/ns/bank/sa/teller"
)

// withIssuer is a service that knows certificates and an issuer's tokens, in an order.
func withIssuer(t *testing.T, i *oidctest.Issuer, changes ...string) *program {
	t.Helper()
	text := strings.Replace(alone, "cluster: {disabled: true}", "cluster: {disabled: true}\nauthenticators: [{kind: certificate}, ISSUER]", 1)
	text = strings.NewReplacer(changes...).Replace(text)
	dir := files(t, strings.ReplaceAll(text, "ISSUER", issuerIn(t, i, t.TempDir())))
	issuerIn(t, i, dir)
	write(t, filepath.Join(dir, "resources", "web.yaml"), web)
	p := start(t, dir)
	p.ready(t)
	return p
}

// shows tells whether status has a stream of somebody.
func (p *program) shows(t *testing.T, identity, kind string) bool {
	t.Helper()
	_, text := p.page(t, "/status.json")
	return strings.Contains(text, `"identity": "`+identity+`",`+"\n        \"kind\": \""+kind+`"`)
}

func TestTokenIsVerifiedByIssuerDiscovery(t *testing.T) {
	t.Parallel()
	i := oidctest.Start(t, nil)
	p := withIssuer(t, i)
	ca := p.authority(t)
	answer, err := caller{tls: ca.client(t, ""), token: i.Token(t, jwtUser, "discovery", time.Hour)}.first(t, p.tls(t), clusterURL)
	if err != nil || len(answer.Resources) != 1 || !p.shows(t, jwtUser, "jwt") {
		t.Errorf("%v, %v\n%s", answer, err, p.log)
	}
	if _, text := p.page(t, "/status.json"); !strings.Contains(text, `"cluster": "far"`) {
		t.Errorf("it is not in the issuer's cluster:\n%s", text)
	}
}

// The client hears one sentence whatever the reasons are; the log has all of them, and
// no token.
func TestAuthenticationReasonsAreOnlyLogged(t *testing.T) {
	t.Parallel()
	i, other := oidctest.Start(t, nil), oidctest.Start(t, nil)
	p := withIssuer(t, i)
	ca := p.authority(t)
	stranger := newAuthority(t).client(t, gateway)
	stranger.RootCAs = ca.roots
	for name, c := range map[string]struct {
		who  caller
		logs []string
	}{
		"a token for another audience": {caller{tls: ca.client(t, ""), token: i.Token(t, jwtUser, "others", time.Hour)}, []string{"error.certificate=", `"error.jwt ` + i.URL + `"=`, "audiences are [others]"}},
		"an expired token":             {caller{tls: ca.client(t, ""), token: i.Token(t, jwtUser, "discovery", -time.Hour)}, []string{"the token expired at"}},
		"another issuer's token":       {caller{tls: ca.client(t, ""), token: other.Token(t, jwtUser, "discovery", time.Hour)}, []string{"the token's issuer is"}},
		"a subject of another domain":  {caller{tls: ca.client(t, ""), token: i.Token(t, gateway, "discovery", time.Hour)}, []string{"is not in a trust domain allowed for this issuer"}},
		"a certificate of a stranger":  {caller{tls: stranger, token: "x.y.z"}, []string{"error.certificate=", "unknown authority"}},
	} {
		_, err := c.who.first(t, p.tls(t), clusterURL)
		if status.Code(err) != codes.Unauthenticated || status.Convert(err).Message() != "the caller could not be authenticated" {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range c.logs {
			p.log.await(t, regexp.QuoteMeta(part))
		}
		if len(c.who.token) > 20 && strings.Contains(p.log.String(), c.who.token[len(c.who.token)-40:]) {
			t.Errorf("%s: the log has the token", name)
		}
	}
}

func TestFirstMatchingAuthenticatorWins(t *testing.T) {
	t.Parallel()
	i := oidctest.Start(t, nil)
	for _, c := range []struct{ order, want, kind string }{
		{"[{kind: certificate}, ISSUER]", gateway, "certificate"},
		{"[ISSUER, {kind: certificate}]", jwtUser, "jwt"},
	} {
		p := withIssuer(t, i, "[{kind: certificate}, ISSUER]", c.order)
		ca := p.authority(t)
		both := caller{tls: ca.client(t, gateway), token: i.Token(t, jwtUser, "discovery", time.Hour)}
		if _, err := both.first(t, p.tls(t), clusterURL); err != nil || !p.shows(t, c.want, c.kind) {
			t.Errorf("%s: %v\n%s", c.order, err, p.log)
		}
		// One that refuses does not end the search.
		bad := caller{tls: ca.client(t, gateway), token: i.Token(t, jwtUser, "discovery", -time.Hour)}
		if _, err := bad.first(t, p.tls(t), clusterURL); err != nil {
			t.Errorf("%s, with a token that has expired: %v\n%s", c.order, err, p.log)
		}
	}
}

func TestPlaintextTokensNeedPermission(t *testing.T) {
	t.Parallel()
	i := oidctest.Start(t, nil)
	for _, c := range []struct {
		allowed string
		want    codes.Code
	}{{"", codes.Unauthenticated}, {", allow_token_over_plaintext: true", codes.OK}} {
		p := withIssuer(t, i, "listen: {tls: '127.0.0.1:0'", "listen: {tls: '127.0.0.1:0', plaintext: '127.0.0.1:0'"+c.allowed)
		plain := p.log.await(t, `"serving ADS and SDS without TLS" address=(\S+)`)
		token := i.Token(t, jwtUser, "discovery", time.Hour)
		answer, err := caller{token: token}.first(t, plain, clusterURL)
		if status.Code(err) != c.want || c.want == codes.OK && len(answer.GetResources()) != 1 {
			t.Errorf("with a token%s: %v", c.allowed, err)
		}
		if _, err := (caller{}).first(t, plain, clusterURL); status.Code(err) != codes.Unauthenticated {
			t.Errorf("without a token%s: %v", c.allowed, err)
		}
		if strings.Contains(p.log.String(), token[len(token)-40:]) {
			t.Error("the log has the token")
		}
	}
}

// leeway is how much clocks may differ: a token counts until then.
const leeway = 30 * time.Second

// The token's end is the stream's.
func TestStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	i := oidctest.Start(t, nil)
	p := withIssuer(t, i)
	// On a busy machine a short token has expired before its stream opens.
	for life := 3 * time.Second; life < patience; life *= 2 {
		s, err := caller{tls: p.authority(t).client(t, ""), token: i.Token(t, jwtUser, "discovery", life-leeway)}.open(t, p.tls(t), clusterURL)
		if err == nil {
			err = last(s)
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Fatalf("%v\n%s", err, p.log)
		}
		if strings.Contains(p.metrics(t), `ended_streams_total{reason="credential-expired"} 1`) {
			return
		}
	}
	t.Errorf("no stream ended with its token\n%s", p.log)
}
