package jwt

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/countersign-dev/countersign/sdk/authn"
)

func TestIssuerKeysAreDiscovered(t *testing.T) {
	s := newIssuer(t)
	for name, iss := range map[string]string{"": s.URL, "with a slash at its end": s.URL + "/"} {
		cfg := s.config()
		cfg.Issuer = iss
		s.answer(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == discoveryPath {
				_ = json.NewEncoder(w).Encode(map[string]string{"issuer": iss, "jwks_uri": s.URL + "/keys"})
				return
			}
			s.serve(t, w, r)
		})
		v := verifier(t, cfg)
		for range 3 {
			got, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(iss))))
			if err != nil || got.Issuer != iss {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
	if n := s.asked.Load(); n != 2 {
		t.Errorf("the keys were fetched %d times for two verifiers", n)
	}
}

func TestKeysComeFromURLOrFile(t *testing.T) {
	s := newIssuer(t)
	atURL := s.config()
	atURL.Issuer, atURL.JWKSURL = issuer, s.URL+"/keys"
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(t, w, r) }))
	defer plain.Close()
	onLoopback := s.config()
	onLoopback.Issuer, onLoopback.JWKSURL, onLoopback.AllowLoopbackHTTP = issuer, plain.URL+"/keys", true
	for name, v := range map[string]*Verifier{"URL": verifier(t, atURL), "http on loopback": verifier(t, onLoopback), "file": fixed(t)} {
		if _, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()["rsa"], "rsa", jose.RS256, claimsOf(issuer)))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIssuerFaultIsUnavailableNotRefused(t *testing.T) {
	s := newIssuer(t)
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(t, w, r) }))
	defer elsewhere.Close()
	discover := func(document string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != discoveryPath {
				s.serve(t, w, r)
				return
			}
			_, _ = w.Write([]byte(document))
		}
	}
	keysAre := func(handler http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == discoveryPath {
				s.serve(t, w, r)
				return
			}
			handler(w, r)
		}
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"another issuer's document":   {discover(`{"issuer":"https://evil.example","jwks_uri":"` + s.URL + `/keys"}`), `the issuer "https://evil.example"`},
		"the issuer with a slash":     {discover(`{"issuer":"` + s.URL + `/","jwks_uri":"` + s.URL + `/keys"}`), "has the issuer"},
		"the issuer twice":            {discover(`{"issuer":"https://evil.example","issuer":"` + s.URL + `","jwks_uri":"` + s.URL + `/keys"}`), "no discovery document in JSON"},
		"no document":                 {http.NotFound, "status 404"},
		"a page":                      {discover("<html>"), "no discovery document in JSON"},
		"keys without TLS":            {discover(`{"issuer":"` + s.URL + `","jwks_uri":"http://127.0.0.1/keys"}`), "is not https"},
		"keys in a file":              {discover(`{"issuer":"` + s.URL + `","jwks_uri":"file:///etc/passwd"}`), "invalid URL"},
		"keys nowhere":                {discover(`{"issuer":"` + s.URL + `"}`), "invalid URL"},
		"keys of a stranger's server": {discover(`{"issuer":"` + s.URL + `","jwks_uri":"` + strings.Replace(s.URL, "127.0.0.1", "localhost", 1) + `/keys"}`), "not localhost"},
		"a redirect to another": {keysAre(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/keys", http.StatusFound)
		}), "redirects elsewhere"},
		"a redirect without TLS": {keysAre(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(s.URL, "https", "http", 1)+"/keys", http.StatusFound)
		}), "redirects elsewhere"},
		"a redirect in a circle": {keysAre(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) }), "more than 3 times"},
		"keys that are too long": {keysAre(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxDocument+1)) }), "more than 524288 bytes"},
		"no keys at all":         {keysAre(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) }), "none of the 0 keys"},
		"keys that are not JSON": {keysAre(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x00\x1b")) }), "not a JWK set"},
		"an error":               {keysAre(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "x", http.StatusBadGateway) }), "status 502"},
	} {
		s.answer(test.handler)
		v := verifier(t, s.config())
		_, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()["ed"], "ed", jose.EdDSA, claimsOf(s.URL))))
		if !errors.Is(err, authn.ErrUnavailable) || !strings.Contains(err.Error(), test.says) || len(err.Error()) > 1000 {
			t.Errorf("%s: %v; want %q", name, err, test.says)
		}
	}
}

func TestMaxAgeIsBounded(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"":                                defaultLife,
		"no-store":                        defaultLife,
		"public, max-age=600":             10 * time.Minute,
		"MAX-AGE=600, must-revalidate":    10 * time.Minute,
		`max-age="600"`:                   10 * time.Minute,
		"max-age=0":                       minLife,
		"max-age=31536000":                maxLife,
		"max-age=-1":                      defaultLife,
		"max-age=99999999999999999999999": defaultLife,
		"s-maxage=5":                      defaultLife,
	} {
		if got := lifeOf(http.Header{"Cache-Control": {header}}); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
}

func TestKeyFileMustBeRegularAndBounded(t *testing.T) {
	dir := t.TempDir()
	pipe, long, bad := filepath.Join(dir, "pipe"), filepath.Join(dir, "long"), filepath.Join(dir, "bad")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{long: make([]byte, maxDocument+1), bad: []byte("{}")} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, says := range map[string]string{pipe: "not a regular file", dir: "not a regular file", long: "more than 524288 bytes", bad: "none of the 0 keys", filepath.Join(dir, "none"): "no such file"} {
		if _, err := readFile(path); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestWrongSettingsAreOneSentence(t *testing.T) {
	good := Config{Issuer: issuer, Audiences: []string{audience1}, ServiceAccounts: template}
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no issuer":             {func(c *Config) { c.Issuer = "" }, "an issuer is required"},
		"no audience":           {func(c *Config) { c.Audiences = nil }, "an audience is required"},
		"an empty audience":     {func(c *Config) { c.Audiences = []string{""} }, "an audience is required"},
		"http":                  {func(c *Config) { c.Issuer = "http://issuer.example" }, "is not https"},
		"http on loopback":      {func(c *Config) { c.Issuer = "http://127.0.0.1:80" }, "is not https"},
		"http allowed, not far": {func(c *Config) { c.Issuer, c.AllowLoopbackHTTP = "http://127.0.0.1.evil.example", true }, "is not https"},
		"a name, no URL":        {func(c *Config) { c.Issuer = "kubernetes/serviceaccount" }, "invalid URL"},
		"a query":               {func(c *Config) { c.Issuer = issuer + "?x=1" }, "must not have a query"},
		"a password":            {func(c *Config) { c.Issuer, c.JWKSURL = "x", "https://me:secret@issuer.example/keys" }, "has a user in it"},
		"URL and file":          {func(c *Config) { c.JWKSURL, c.JWKSFile = issuer, "/keys" }, "not both"},
		"nobody":                {func(c *Config) { c.ServiceAccounts = "" }, "service_accounts or trust_domain is required"},
		"a template":            {func(c *Config) { c.ServiceAccounts = "spiffe://x/{namespace}" }, "{service_account}"},
		"a trust domain":        {func(c *Config) { c.TrustDomain = "Example.org" }, "lower-case"},
		"HS256":                 {func(c *Config) { c.Algorithms = []string{"RS256", "HS256"} }, `"HS256" is not allowed`},
		"none":                  {func(c *Config) { c.Algorithms = []string{"none"} }, `"none" is not allowed`},
		"a day of leeway":       {func(c *Config) { c.Leeway = 24 * time.Hour }, "0s to 5m0s"},
	} {
		cfg := good
		test.change(&cfg)
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

func TestOnlyConfiguredAlgorithmsAreAccepted(t *testing.T) {
	s := newIssuer(t)
	cfg := s.config()
	cfg.Algorithms = []string{"ES256"}
	v := verifier(t, cfg)
	if _, err := v.Authenticate(t.Context(), with(sign(t, keysOnce()["p256"], "p256", jose.ES256, claimsOf(s.URL)))); err != nil {
		t.Error(err)
	}
	mustRefuse(t, v, "RS256", sign(t, keysOnce()["rsa"], "rsa", jose.RS256, claimsOf(s.URL)), fmt.Sprintf("%q; [ES256] are allowed", "RS256"))
}
