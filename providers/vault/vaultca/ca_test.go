package vaultca

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const web = "spiffe://example.org/ns/default/sa/web"

// sign asks for a certificate, with the token of a request.
func sign(t *testing.T, c *CA, token ca.Token) error {
	t.Helper()
	req, _ := testkit.Request(t, web)
	req.Token = token
	_, err := c.CSRSign(t.Context(), req)
	return err
}

func TestCSRIsSignedByRoleAndRootIsLeftOut(t *testing.T) {
	v := newVault(t)
	v.namespace, v.ownNames = "team/a", true
	settings := v.settings()
	settings.Namespace = v.namespace
	c := v.open(t, settings)
	req, key := testkit.Request(t, web, "web.example.org", "www.example.org")
	req.IPAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	cert, err := c.CSRSign(t.Context(), req)
	must(t, err)
	chain := certificates(cert.Chain)
	if !pki.SameKey(chain[0].PublicKey, key.Public()) || len(chain) != 2 || len(cert.Roots) != 0 {
		t.Errorf("%d certificates, roots %q", len(chain), cert.Roots)
	}
	if asked := v.paths(); asked != "auth/approle/login pki/sign/web" {
		t.Errorf("asked for %q", asked)
	}
	if want := map[string]any{
		"csr": string(req.CSR), "format": "pem", "ttl": "3600s", "exclude_cn_from_sans": true, "uri_sans": web,
		"alt_names": "web.example.org,www.example.org", "ip_sans": "192.0.2.1,2001:db8::1",
	}; !reflect.DeepEqual(v.sent[0], want) {
		t.Errorf("sent %v", v.sent[0])
	}
}

func TestTTLIsInWholeSecondsOrLeftToRole(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	for ttl, want := range map[time.Duration]any{0: nil, time.Millisecond: "1s", 90 * time.Minute: "5400s"} {
		req, _ := testkit.Request(t, web)
		req.TTL = ttl
		_, err := c.CSRSign(t.Context(), req)
		must(t, err)
		if got := v.sent[len(v.sent)-1]["ttl"]; got != want {
			t.Errorf("%s was asked for as %v", ttl, got)
		}
	}
}

func TestVerbatimSignsCSRAsItIs(t *testing.T) {
	v := newVault(t)
	for role, path := range map[string]string{"": "pki/sign-verbatim", "web": "pki/sign-verbatim/web"} {
		settings := v.settings()
		settings.Role, settings.Verbatim = role, true
		c := v.open(t, settings)
		req, _ := testkit.Request(t, web, "elsewhere.example.net")
		_, err := c.CSRSign(t.Context(), req)
		must(t, err)
		if asked := v.paths(); asked != "auth/approle/login "+path {
			t.Errorf("asked for %q", asked)
		}
		if usage, _ := v.sent[len(v.sent)-1]["ext_key_usage"].([]any); len(usage) != 2 {
			t.Errorf("for what: %v", usage)
		}
	}
}

func TestNameOutsideRoleIsDenied(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	req, _ := testkit.Request(t, web, "bank.example.com")
	_, err := c.CSRSign(t.Context(), req)
	if !errors.Is(err, ca.ErrDenied) || !strings.Contains(err.Error(), "bank.example.com not allowed by this role") {
		t.Errorf("%v", err)
	}
	if asked := v.paths(); strings.Contains(asked, "lookup") {
		t.Errorf("a token is doubted that is good: %s", asked)
	}
	for _, words := range []string{
		"URI Subject Alternative Names were provided via CSR which are not valid for this role",
		"IP Subject Alternative Names are not allowed in this role, but was provided some via CSR",
		"other SAN x not allowed for OID y by this role",
	} {
		if got, ok := reason(http.StatusBadRequest, []byte(`{"errors":["`+words+`"]}`)); !ok || got != ca.Denied {
			t.Errorf("%s: %s", words, got)
		}
	}
}

func TestUnknownRoleIsAWrongSetting(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Role = "wbe"
	if err := sign(t, v.open(t, settings), ""); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "unknown role: wbe") {
		t.Errorf("%v", err)
	}
}

func TestForbiddenTokenDiffersFromInvalidToken(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{}
	c := v.open(t, settings)
	must(t, sign(t, c, rootToken))
	v.change(func() { v.policy = false })
	if err := sign(t, c, rootToken); !errors.Is(err, ca.ErrDenied) {
		t.Errorf("its policy does not allow it: %v", err)
	}
	for _, token := range []ca.Token{"hvs.another-token-of-nobody", rootToken} {
		v.change(func() { delete(v.tokens, rootToken) })
		err := sign(t, c, token)
		if !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(err.Error(), token.Reveal()) {
			t.Errorf("the server does not know it: %v", err)
		}
	}
	if err := sign(t, c, ""); !errors.Is(err, ca.ErrUnauthenticated) || !strings.Contains(err.Error(), "login.token_file") {
		t.Errorf("there is none: %v", err)
	}
	for _, token := range []ca.Token{"two\nlines", "two words", "sésame"} {
		if err := sign(t, c, token); !errors.Is(err, ca.ErrUnauthenticated) || strings.Contains(err.Error(), token.Reveal()) {
			t.Errorf("%q: %v", token.Reveal(), err)
		}
	}
}

func TestEachFailureHasReasonAndShowsNoToken(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{TokenFile: setting.File(v.folder + "/token")}
	c := v.open(t, settings)
	for status, wants := range map[int]*ca.Error{
		400: ca.ErrInvalid, 403: ca.ErrUnauthenticated, 404: ca.ErrInvalid, 405: ca.ErrInvalid, 412: ca.ErrUnavailable, 429: ca.ErrRateLimited,
		472: ca.ErrUnavailable, 473: ca.ErrUnavailable, 500: ca.ErrInternal, 502: ca.ErrUnavailable, 503: ca.ErrUnavailable,
		301: ca.ErrInvalid, 307: ca.ErrUnavailable,
	} {
		v.answerAll(func(w http.ResponseWriter, r *http.Request) {
			token := r.Header.Get("X-Vault-Token")
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "https://elsewhere.example.org/?token="+token)
			refuse(w, status, "no: "+token+"\n")
		})
		err := sign(t, c, "")
		if !errors.Is(err, wants) || status != 403 && ca.RetryAfter(err) != 7*time.Second {
			t.Errorf("%d: %v, again after %s", status, err, ca.RetryAfter(err))
		}
		if strings.Contains(err.Error(), "hvs.") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestMalformedAnswerIsServerFault(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	must(t, sign(t, c, "")) // a session is held
	root := string(v.Bundle().PEM())
	for what, body := range map[string]string{
		"no JSON": "<html>", "nothing": "", "no certificate": `{"data":{"certificate":"x"}}`, "no data": `{"data":null}`,
		"too much": `{"data":{"certificate":"` + strings.Repeat("x", 3<<20) + `"}}`, "a list": `[]`,
		"a root alone": `{"data":{"certificate":"` + strings.ReplaceAll(root, "\n", `\n`) + `"}}`,
	} {
		v.answerAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) })
		if err := sign(t, c, ""); !errors.Is(err, ca.ErrInternal) || len(err.Error()) > 600 {
			t.Errorf("%s: %.300v", what, err)
		}
	}
}

func TestServerWithOtherRootGetsNoToken(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.RootFile = v.write(t, "other.pem", v.Bundle().PEM())
	err := sign(t, v.open(t, settings), "")
	if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "not trusted") || v.paths() != "" {
		t.Errorf("%v, asked for %q", err, v.paths())
	}
}

func TestCallEndsWithItsCaller(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	gone := make(chan struct{})
	v.answerAll(func(_ http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body) // the server notices an end only when the body is read
		leave()
		<-r.Context().Done()
		close(gone)
	})
	req, _ := testkit.Request(t, web)
	if _, err := c.CSRSign(ctx, req); !errors.Is(err, ca.ErrCanceled) {
		t.Errorf("%v", err)
	}
	<-gone
}
