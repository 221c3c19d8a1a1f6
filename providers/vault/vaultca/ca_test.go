package vaultca

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const web = "spiffe://example.org/ns/default/sa/web"

func request(t *testing.T, names ...string) (ca.SignRequest, crypto.Signer) {
	t.Helper()
	key, err := pki.GenerateKey("")
	must(t, err)
	id, err := pki.NewIdentity(web, names, nil)
	must(t, err)
	csr, err := pki.CreateCSR(key, id)
	must(t, err)
	return ca.SignRequest{ID: uuid.NewString(), CSR: csr, SubjectID: web, DNSNames: names, TTL: time.Hour}, key
}

// sign asks for a certificate, with the token of a request.
func sign(t *testing.T, c *CA, token ca.Token) error {
	t.Helper()
	req, _ := request(t)
	req.Token = token
	_, err := c.CSRSign(t.Context(), req)
	return err
}

func TestACSRIsSignedByTheRoleAndTheRootIsLeftOut(t *testing.T) {
	v := newVault(t)
	v.namespace = "team/a"
	settings := v.settings()
	settings.Namespace = v.namespace
	c := v.open(t, settings)
	req, key := request(t, "web.example.org", "www.example.org")
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

func TestALifeIsAskedForInWholeSecondsOrLeftToTheRole(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	for ttl, want := range map[time.Duration]any{0: nil, time.Millisecond: "1s", 90 * time.Minute: "5400s"} {
		req, _ := request(t)
		req.TTL = ttl
		_, err := c.CSRSign(t.Context(), req)
		must(t, err)
		if got := v.sent[len(v.sent)-1]["ttl"]; got != want {
			t.Errorf("%s was asked for as %v", ttl, got)
		}
	}
}

func TestVerbatimTakesTheCSRAsItIs(t *testing.T) {
	v := newVault(t)
	for role, path := range map[string]string{"": "pki/sign-verbatim", "web": "pki/sign-verbatim/web"} {
		settings := v.settings()
		settings.Role, settings.Verbatim = role, true
		c := v.open(t, settings)
		req, _ := request(t, "elsewhere.example.net")
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

func TestWhatTheRoleDoesNotHaveIsDenied(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	req, _ := request(t, "bank.example.com")
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

func TestAnUnknownRoleIsAWrongSetting(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Role = "wbe"
	if err := sign(t, v.open(t, settings), ""); !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), "unknown role: wbe") {
		t.Errorf("%v", err)
	}
}

func TestATokenThatMayNotIsToldFromOneThatIsNone(t *testing.T) {
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

func TestEachFailureIsWhatItStandsForAndSaysNoToken(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.Login = Login{TokenFile: v.folder + "/token"}
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

func TestAnAnswerThatIsNoneIsTheServersFault(t *testing.T) {
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

func TestAServerWithAnotherRootIsNotTrustedWithTheToken(t *testing.T) {
	v := newVault(t)
	settings := v.settings()
	settings.RootFile = v.write(t, "other.pem", v.Bundle().PEM())
	err := sign(t, v.open(t, settings), "")
	if !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "not trusted") || v.paths() != "" {
		t.Errorf("%v, asked for %q", err, v.paths())
	}
}

func TestACallEndsWithItsCaller(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	must(t, sign(t, c, ""))
	gone := make(chan struct{})
	v.answerAll(func(_ http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body) // the server notices an end only when the body is read
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, _ := request(t)
	if _, err := c.CSRSign(ctx, req); !errors.Is(err, ca.ErrDeadline) {
		t.Errorf("%v", err)
	}
	<-gone
}

func TestRootsAreTheSelfSignedOnesOfAllIssuers(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	first := v.Bundle()
	tells := func(want *pki.Bundle) {
		t.Helper()
		roots, err := c.Roots(t.Context())
		must(t, err)
		if string(roots) != string(want.PEM()) {
			t.Errorf("roots: %s", roots)
		}
	}
	tells(first)
	second := catest.NewCA(catest.Options{Intermediates: 1})
	req, _ := request(t)
	cert, err := second.CSRSign(t.Context(), req)
	must(t, err)
	intermediate := certificates(cert.Chain)[1:]
	v.change(func() { // an intermediate that knows what stands above it
		v.issuers = append(v.issuers, append(intermediate, second.Bundle().Certificates()...))
	})
	tells(first.Union(second.Bundle()))
	v.change(func() { v.issuers = v.issuers[1:] })
	tells(second.Bundle())
	if asked := v.paths(); strings.Contains(asked, "login") {
		t.Errorf("roots need no token: %s", asked)
	}

	v.change(func() { v.issuers = [][]*x509.Certificate{intermediate} })
	if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "the mount pki has no self-signed issuer") || !strings.Contains(err.Error(), "bundle_file") {
		t.Errorf("an intermediate alone: %v", err)
	}
	settings := v.settings()
	settings.BundleFile = v.write(t, "bundle.pem", first.PEM())
	c = v.open(t, settings)
	tells(first)
	v.write(t, "bundle.pem", second.Bundle().PEM()) // it is read each time
	tells(second.Bundle())
	for says, content := range map[string][]byte{"not self-signed": pki.EncodeCertificates(intermediate), "bundle.pem": []byte("nothing")} {
		v.write(t, "bundle.pem", content)
		if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestAServerOfBeforeTheIssuersIsAskedForItsChain(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	root := string(v.Bundle().PEM())
	v.answerAll(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/pki/cert/ca_chain") {
			refuse(w, http.StatusForbidden, "permission denied")
			return
		}
		answer(w, map[string]any{"data": map[string]any{"certificate": root}})
	})
	roots, err := c.Roots(t.Context())
	if err != nil || string(roots) != root {
		t.Errorf("%s, %v", roots, err)
	}
}

func TestRootsThatAreNoneAreAnError(t *testing.T) {
	v := newVault(t)
	c := v.open(t, v.settings())
	for what, wants := range map[string]struct {
		body string
		err  *ca.Error
	}{
		"no issuer":         {`{"data":{"keys":[]}}`, ca.ErrUnavailable},
		"too many":          {`{"data":{"keys":["x"` + strings.Repeat(`,"x"`, maxIssuers) + `]}}`, ca.ErrInternal},
		"no certificate":    {`{"data":{"keys":["x"],"certificate":"x"}}`, ca.ErrInternal},
		"no JSON":           {`<html>`, ca.ErrInternal},
		"an id that is one": {`{"data":{"keys":["../../sys/seal"],"certificate":""}}`, ca.ErrInternal},
	} {
		v.paths()
		v.answerAll(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(wants.body)) })
		if _, err := c.Roots(t.Context()); !errors.Is(err, wants.err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	v.answerAll(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusServiceUnavailable, "Vault is sealed")
	})
	if _, err := c.Roots(t.Context()); !errors.Is(err, ca.ErrUnavailable) || !strings.Contains(err.Error(), "sealed") {
		t.Errorf("sealed: %v", err)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	good := Settings{URL: "https://vault:8200", Role: "web", Namespace: "a/b", Mount: "pki/int"}
	must(t, good.Validate())
	for says, change := range map[string]func(*Settings){
		"url":                              func(s *Settings) { s.URL = "http://vault:8200" },
		"a user":                           func(s *Settings) { s.URL = "https://me:secret@vault" },
		`mount is "../sys"`:                func(s *Settings) { s.Mount = "../sys" },
		`mount is "pki/"`:                  func(s *Settings) { s.Mount = "pki/" },
		`mount is "pki?x"`:                 func(s *Settings) { s.Mount = "pki?x" },
		`role is "a/b"`:                    func(s *Settings) { s.Role = "a/b" },
		`role is ".."`:                     func(s *Settings) { s.Role = ".." },
		`namespace is "a\nb"`:              func(s *Settings) { s.Namespace = "a\nb" },
		"role is not set":                  func(s *Settings) { s.Role = "" },
		"client_key_file is \"\"":          func(s *Settings) { s.ClientCertFile = "x" },
		`login.method is "ldap"`:           func(s *Settings) { s.Login.Method = "ldap" },
		"login.role is not set":            func(s *Settings) { s.Login.Method = Kubernetes },
		"approle needs both":               func(s *Settings) { s.Login = Login{Method: AppRole, RoleID: "x"} },
		"client_cert_file is not set":      func(s *Settings) { s.Login.Method = Cert },
		"login.secret_id_file are for":     func(s *Settings) { s.Login.SecretIDFile = "x" },
		"login.role is for kubernetes":     func(s *Settings) { s.Login.Role = "x" },
		"login.mount is \"x\"":             func(s *Settings) { s.Login.Mount = "x" },
		"login.token_file is for token":    func(s *Settings) { s.Login = Login{Method: AppRole, RoleID: "x", SecretIDFile: "x", TokenFile: "x"} },
		`login.mount is "a//b": it has to`: func(s *Settings) { s.Login = Login{Method: Kubernetes, Role: "x", Mount: "a//b"} },
	} {
		s := good
		change(&s)
		_, err := Open(s)
		if !errors.Is(err, ca.ErrInvalid) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", says, err)
		}
	}
}
