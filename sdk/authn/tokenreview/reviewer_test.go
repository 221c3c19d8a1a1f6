package tokenreview

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
)

func TestReviewedTokenGivesItsServiceAccount(t *testing.T) {
	s := newAPIServer(t)
	got, err := reviewer(t, s.config()).Authenticate(t.Context(), with(tokenOf("web", time.Hour)))
	want := authn.Identity{
		Kind: authn.ByTokenReview, SPIFFEID: "spiffe://cluster.local/ns/shop/sa/web", Namespace: "shop", ServiceAccount: "web",
		Issuer: s.URL, Cluster: "east", Pod: "web-0", PodUID: "u2", Node: "node-1", ServiceAccountUID: "u1", Expiry: now.Add(time.Hour).Local(),
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	noTemplate := s.config()
	noTemplate.ServiceAccounts = ""
	got, err = reviewer(t, noTemplate).Authenticate(t.Context(), with("opaque-token"))
	if err != nil || got.SPIFFEID != "" || got.String() != "system:serviceaccount:shop:web" || !got.Expiry.IsZero() {
		t.Errorf("without template and expiry: %+v, %v", got, err)
	}
	if _, err := reviewer(t, s.config()).Authenticate(t.Context(), with("")); !errors.Is(err, authn.ErrNotMine) {
		t.Errorf("without a token: %v", err)
	}
}

// bearing is a transport that has a credential, as client-go's.
type bearing struct{ next http.RoundTripper }

func (b bearing) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+ownToken.Reveal())
	return b.next.RoundTrip(req)
}

func TestTransportBringsItsOwnCredential(t *testing.T) {
	s := newAPIServer(t)
	cfg := s.config()
	cfg.Token, cfg.RootFile, cfg.Transport = nil, "", bearing{s.Client().Transport}
	if got, err := reviewer(t, cfg).Authenticate(t.Context(), with(tokenOf("web", time.Hour))); err != nil || got.ServiceAccount != "web" {
		t.Errorf("%+v, %v", got, err)
	}
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, s.URL+"/other", http.StatusTemporaryRedirect)
	})
	if _, err := reviewer(t, cfg).Authenticate(t.Context(), with(tokenOf("api", time.Hour))); !errors.Is(err, authn.ErrUnavailable) || !strings.Contains(err.Error(), "redirects") {
		t.Errorf("after a redirect: %v", err)
	}
	s.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	if _, err := reviewer(t, cfg).Authenticate(t.Context(), with(tokenOf("api", time.Hour))); !errors.Is(err, authn.ErrUnavailable) {
		t.Errorf("its credential is refused: %v", err)
	}
}

// changed is a good answer with one thing else; nil leaves it out.
func changed(name string, value any) map[string]any {
	status := good()
	if status[name] = value; value == nil {
		delete(status, name)
	}
	return status
}

func userWith(name string, value any) map[string]any {
	status := good()
	status["user"].(map[string]any)[name] = value
	return status
}

func TestUnconfirmedTokenIsRefused(t *testing.T) {
	s := newAPIServer(t)
	token := tokenOf("web", time.Hour)
	for name, test := range map[string]struct {
		status map[string]any
		says   string
	}{
		"not authenticated":              {changed("authenticated", false), "rejected the token"},
		"nothing said about it":          {changed("authenticated", nil), "rejected the token"},
		"an error":                       {map[string]any{"error": "[invalid bearer token, square/go-jose: error]"}, "invalid bearer token"},
		"an expired one":                 {map[string]any{"error": "[invalid bearer token, service account token has expired]"}, "has expired"},
		"one of a pod that is gone":      {map[string]any{"error": "service account token has been invalidated"}, "invalidated"},
		"one of the future":              {map[string]any{"error": "[invalid bearer token, service account token is issued in the future]"}, "in the future"},
		"one of an account made anew":    {map[string]any{"error": "service account UID (1) does not match claim (2)"}, "does not match"},
		"one of a pod made anew":         {map[string]any{"error": "pod UID (1) does not match service account pod ref claim (2)"}, "does not match"},
		"one of an account that goes":    {map[string]any{"error": "service account shop/web has been deleted"}, "deleted"},
		"one of an account that is gone": {map[string]any{"error": "[invalid bearer token, serviceaccounts \"web\" not found]"}, "not found"},
		"one of another cluster":         {map[string]any{"error": "[invalid bearer token, invalid signature, no keys found]"}, "no keys found"},
		"one of a deleted account":       {map[string]any{"error": "[invalid bearer token, ServiceAccount shop/web has been deleted]"}, "has been deleted"},
		"one of a secret that is marked": {map[string]any{"error": "[invalid bearer token, the token in secret shop/web for service account shop/web has been marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the 'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token]"}, "marked invalid"},
		"an error with the token":        {map[string]any{"error": "invalid bearer token " + token.Reveal()}, "token (secret)"},
		"an error with lines":            {map[string]any{"error": "invalid bearer token\n" + strings.Repeat("x", 5000)}, `token\nx`},
		"another audience":               {changed("audiences", []string{"vault"}), "audiences are [vault]"},
		"an audience that looks alike":   {changed("audiences", []string{"istio-ca "}), "audiences are [istio-ca ]"},
		"no audiences, an old server":    {changed("audiences", nil), "audiences are []"},
		"a user":                         {userWith("username", "admin"), "not a service account"},
		"a node":                         {userWith("username", "system:node:n1"), "not a service account"},
		"an account that is a path":      {userWith("username", "system:serviceaccount:a/sa/b:c"), "not a service account"},
		"a user that calls itself one":   {userWith("groups", []string{"system:authenticated"}), `not in the group "system:serviceaccounts"`},
		"one of another namespace":       {userWith("groups", []string{"system:serviceaccounts", "system:serviceaccounts:kube-system"}), `not in the group "system:serviceaccounts:shop"`},
		"a user that repeats the token":  {userWith("username", token.Reveal()), "not a service account"},
	} {
		s.says(test.status)
		got, err := reviewer(t, s.config()).Authenticate(t.Context(), with(token))
		if got != (authn.Identity{}) || !errors.Is(err, authn.ErrRefused) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %+v, %v; want a refusal with %q", name, got, err, test.says)
		}
		mustBeFit(t, name, err, token)
	}
}

// What the API server failed to find out does not refuse the token.
func TestErrorOfUnknownMeaningRefusesNoToken(t *testing.T) {
	s := newAPIServer(t)
	token := tokenOf("web", time.Hour)
	for name, fault := range map[string]string{
		"its storage":     "etcdserver: request timed out",
		"a webhook":       "[invalid bearer token, Post \"https://webhook.example/\": dial tcp: connection refused]",
		"its certificate": "[invalid bearer token, Post \"https://webhook.example/\": x509: certificate has expired or is not yet valid]",
		"its rights":      "serviceaccounts \"web\" is forbidden",
		"an issuer":       "oidc: verify token: fetching keys: context deadline exceeded",
		"a new text":      "teapot",
		"with the token":  "bad " + token.Reveal(),
		"with lines":      "one\ntwo" + strings.Repeat("x", 5000),
		"only its spaces": " ",
	} {
		s.says(map[string]any{"authenticated": false, "error": fault})
		got, err := reviewer(t, s.config()).Authenticate(t.Context(), with(token))
		if got != (authn.Identity{}) || !errors.Is(err, authn.ErrUnavailable) || errors.Is(err, authn.ErrRefused) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		mustBeFit(t, name, err, token)
	}
}

// mustBeFit holds an error to what a log can take.
func mustBeFit(t *testing.T, name string, err error, token ca.Token) {
	t.Helper()
	text := fmt.Sprint(err)
	if len(text) > 700 || strings.ContainsAny(text, "\n\x1b") || strings.Contains(text, token.Reveal()[:25]) || strings.Contains(text, ownToken.Reveal()[:20]) {
		t.Errorf("%s: the error is %q", name, text)
	}
}

func TestAPIServerFaultLeavesCallerUnverified(t *testing.T) {
	s := newAPIServer(t)
	token := tokenOf("web", time.Hour)
	caught := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server was asked") }))
	defer caught.Close()
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	redirect := func(url string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusTemporaryRedirect) }
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"401":                       {status(401, `{"kind":"Status","message":"Unauthorized"}`), " with 401: Unauthorized"},
		"403":                       {status(403, `{"message":"cannot create resource \"tokenreviews\""}`), "cannot create resource"},
		"429":                       {status(429, `{"message":"too many"}`), " with 429: too many"},
		"500":                       {status(500, "<html>"), " with 500"},
		"503 with both tokens":      {status(503, `{"message":"`+token.Reveal()+` by `+ownToken.Reveal()+`"}`), " with 503: (secret) by (secret)"},
		"204":                       {status(204, ""), "invalid JSON"},
		"no JSON":                   {status(201, "ok"), "invalid JSON"},
		"nothing":                   {status(201, ""), "invalid JSON"},
		"an empty object":           {status(201, "{}"), "instead of a TokenReview"},
		"a review of another kind":  {status(201, `{"apiVersion":"authorization.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true}}`), "instead of a TokenReview"},
		"a text where a list is":    {status(201, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"audiences":"istio-ca"}}`), "invalid JSON"},
		"too long":                  {status(201, `"`+strings.Repeat("x", maxReply)+`"`), "more than 262144 bytes"},
		"a redirect to another":     {redirect(caught.URL + path), "redirects are not followed"},
		"a redirect with the token": {redirect(caught.URL + "/?t=" + token.Reveal()), "redirects are not followed"},
		"a redirect to itself":      {redirect("/elsewhere"), "redirects are not followed"},
		"the connection ends":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be reached"},
	} {
		s.answer(test.handler)
		got, err := reviewer(t, s.config()).Authenticate(t.Context(), with(token))
		if got != (authn.Identity{}) || !errors.Is(err, authn.ErrUnavailable) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, test.says)
		}
		mustBeFit(t, name, err, token)
	}
}

func TestOwnTokenIsReadPerReviewAndNeverShown(t *testing.T) {
	s := newAPIServer(t)
	cfg := s.config()
	for name, test := range map[string]struct {
		token ca.Token
		err   error
		says  string
	}{
		"no token is there":     {"", errors.New("token file: /var/run/token: no such file"), "/var/run/token"},
		"an error that shows":   {ownToken, errors.New("bad " + ownToken.Reveal()), "bad (secret)"},
		"one that is two lines": {ownToken + "\r\nX-Admin: 1", nil, "not usable in an HTTP header"},
	} {
		cfg.Token = source{test.token, test.err, nil}
		_, err := reviewer(t, cfg).Authenticate(t.Context(), with(tokenOf("web", time.Hour)))
		if !errors.Is(err, authn.ErrUnavailable) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
		mustBeFit(t, name, err, ownToken)
	}
	if n := s.asked.Load(); n != 0 {
		t.Errorf("the API server was asked %d times", n)
	}
}

// source remembers what was rejected.
type source struct {
	token    ca.Token
	err      error
	rejected *[]ca.Token
}

func (s source) Token(context.Context) (ca.Bearer, error) {
	return ca.Bearer{Token: s.token}, s.err
}

func (s source) Rejected(t ca.Token) { *s.rejected = append(*s.rejected, t) }

func TestSourceLearnsOfRejectedOwnToken(t *testing.T) {
	s := newAPIServer(t)
	for code, want := range map[int]int{http.StatusUnauthorized: 1, http.StatusForbidden: 0, http.StatusInternalServerError: 0} {
		s.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		var rejected []ca.Token
		cfg := s.config()
		cfg.Token = source{ownToken, nil, &rejected}
		if _, err := reviewer(t, cfg).Authenticate(t.Context(), with(tokenOf("web", time.Hour))); !errors.Is(err, authn.ErrUnavailable) {
			t.Errorf("%d: %v", code, err)
		}
		if len(rejected) != want || want == 1 && rejected[0] != ownToken {
			t.Errorf("%d: %d tokens are rejected", code, len(rejected))
		}
	}
}

func TestRootsAreReadForEachReview(t *testing.T) {
	s := newAPIServer(t)
	r := reviewer(t, s.config())
	good, err := os.ReadFile(s.rootFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, content := range []string{"", string(good), "", string(good)} {
		if err := os.WriteFile(s.rootFile, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Authenticate(t.Context(), with(tokenOf(fmt.Sprint("web", i), time.Hour))); (err == nil) != (content != "") {
			t.Errorf("%d bytes of roots: %v", len(content), err)
		}
	}
	cfg := s.config()
	cfg.RootFile = ""
	if _, err := reviewer(t, cfg).Authenticate(t.Context(), with(tokenOf("web", time.Hour))); !errors.Is(err, authn.ErrUnavailable) || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("with the system's roots: %v", err)
	}
}

func TestMalformedTokenIsNotSent(t *testing.T) {
	s := newAPIServer(t)
	for name, token := range map[string]ca.Token{
		"long": ca.Token(strings.Repeat("x", maxToken+1)), "two lines": "a\nb", "a space": "a b", "not ASCII": "tökén", "not UTF-8": "a\xff", "control": "a\x00",
	} {
		if _, err := reviewer(t, s.config()).Authenticate(t.Context(), with(token)); !errors.Is(err, authn.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := s.asked.Load(); n != 0 {
		t.Errorf("the API server was asked %d times", n)
	}
}

func TestSlowAPIServerCostsOneReview(t *testing.T) {
	s := newAPIServer(t)
	hold, arrived := make(chan struct{}), make(chan struct{}, 100)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-hold
		review(good())(w, r)
	})
	r := reviewer(t, s.config())
	token := tokenOf("web", time.Hour)
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := r.Authenticate(ctx, with(token)); !errors.Is(err, authn.ErrUnavailable) {
			t.Errorf("the one that left: %v", err)
		}
	})
	<-arrived
	for range 50 {
		all.Go(func() {
			if _, err := r.Authenticate(t.Context(), with(token)); err != nil {
				t.Errorf("one that waits: %v", err)
			}
		})
	}
	leave()
	close(hold)
	all.Wait()
	if n := s.asked.Load(); n != 1 {
		t.Errorf("the API server was asked %d times", n)
	}
}

func TestConcurrentReviewsAreLimited(t *testing.T) {
	s := newAPIServer(t)
	hold, arrived := make(chan struct{}), make(chan struct{}, 100)
	s.answer(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-hold
		review(map[string]any{})(w, r)
	})
	r := reviewer(t, s.config())
	var all sync.WaitGroup
	for i := range 2 * MaxInFlight {
		all.Go(func() {
			if _, err := r.Authenticate(t.Context(), with(ca.Token(fmt.Sprint("made-up-", i)))); !errors.Is(err, authn.ErrRefused) {
				t.Errorf("made up: %v", err)
			}
		})
	}
	for range MaxInFlight {
		<-arrived
	}
	select {
	case <-arrived:
		t.Error("one more than allowed is on its way")
	default:
	}
	close(hold)
	all.Wait()
}

func TestWrongSettingsAreOneSentence(t *testing.T) {
	good := Config{URL: "https://10.0.0.1:6443", Audiences: []string{"istio-ca"}, Token: token.Static{}}
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"http":            {func(c *Config) { c.URL = "http://127.0.0.1:8080" }, "is not https"},
		"no URL":          {func(c *Config) { c.URL = "" }, "invalid URL"},
		"a query":         {func(c *Config) { c.URL += "/?x" }, "must not have a query"},
		"no token":        {func(c *Config) { c.Token = nil }, "our own token is required"},
		"two credentials": {func(c *Config) { c.Transport = http.DefaultTransport }, "a transport has its own"},
		"no audience":     {func(c *Config) { c.Audiences = nil }, "an audience is required"},
		"kept for a day":  {func(c *Config) { c.Keep = 24 * time.Hour }, "0s to 10m0s"},
		"fewer than none": {func(c *Config) { c.Most = -1 }, "1 or more"},
		"a template":      {func(c *Config) { c.ServiceAccounts = "spiffe://x/y" }, "{namespace}"},
	} {
		cfg := good
		test.change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}
