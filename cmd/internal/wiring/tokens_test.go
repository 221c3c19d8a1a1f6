package wiring

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// exchangingProvider is a provider with the ability.
type exchangingProvider struct {
	ca.Client
	asked  ca.TokenRequest
	asking func()
}

func (p *exchangingProvider) ExchangeToken(_ context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	p.asked = req
	if p.asking != nil {
		p.asking()
	}
	return ca.ExchangedToken{AccessToken: "by-provider-" + req.SubjectToken, Expiry: time.Now().Add(time.Hour)}, nil
}

func TestTokenExchangesRunInOrder(t *testing.T) {
	calls := 0
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		if r.PostFormValue("subject_token_type") != "urn:ietf:params:oauth:token-type:jwt" || r.PostFormValue("audience") != "ca" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(`{"access_token":"by-sts-` + r.PostFormValue("subject_token") + `","issued_token_type":"urn:x","token_type":"Bearer","expires_in":3600}`))
	}))
	defer sts.Close()
	entry := config.Provider{Entry: pluginhost.Entry{Name: "p"}}
	entry.Token = config.Token{
		Sources: []config.TokenSource{{File: "/none"}, {Env: "MY_TOKEN"}},
		Exchange: []config.Exchange{
			{ExchangeServer: config.ExchangeServer{URL: sts.URL, AllowLoopbackHTTP: true}, Audience: "ca"},
			{Provider: true, Scopes: []string{"sign"}},
		},
	}
	provider := &exchangingProvider{}
	authority, err := Authority(entry, provider, NewTokenCache(environ.Vars{"MY_TOKEN=mine"}, silent))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := authority.Token(t.Context()); got.Token != "by-provider-by-sts-mine" || got.Expiry.IsZero() || err != nil {
			t.Fatalf("%q, %v", got.Token.Reveal(), err)
		}
	}
	if want := "urn:ietf:params:oauth:token-type:access_token"; provider.asked.SubjectTokenType != want || provider.asked.Scopes[0] != "sign" || calls != 1 {
		t.Errorf("%d calls, then %+v", calls, provider.asked)
	}
	authority.TokenRejected("by-provider-by-sts-mine")
	if _, err := authority.Token(t.Context()); err != nil || calls != 2 {
		t.Errorf("after it was rejected: %d calls, %v", calls, err)
	}
}

func TestExchangedTokenSurvivesReloadOfSameEntry(t *testing.T) {
	calls := 0
	provider := &exchangingProvider{asking: func() { calls++ }}
	entry := func(audience string) config.Provider {
		e := config.Provider{Entry: pluginhost.Entry{Name: "p"}}
		e.Token = config.Token{TokenSource: config.TokenSource{Env: "MY_TOKEN"}, Exchange: []config.Exchange{{Provider: true, Audience: audience}}}
		return e
	}
	cache := NewTokenCache(environ.Vars{"MY_TOKEN=mine"}, silent)
	for _, step := range []struct {
		what  string
		entry config.Provider
		want  int
	}{
		{"the first", entry("a"), 1}, {"the same", entry("a"), 1}, {"another audience", entry("b"), 2}, {"the first again", entry("a"), 3},
	} {
		authority, err := Authority(step.entry, provider, cache)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := authority.Token(t.Context()); err != nil || calls != step.want {
			t.Errorf("%s: %d exchanges, %v", step.what, calls, err)
		}
	}
	cache.Keep(nil)
	if len(cache.byEntry) != 0 {
		t.Error("the tokens of an entry that is gone are kept")
	}
}

func TestImpossibleExchangeIsNamed(t *testing.T) {
	for says, step := range map[string]config.Exchange{
		"https only":               {ExchangeServer: config.ExchangeServer{URL: "http://sts.example.org"}},
		"does not exchange tokens": {Provider: true},
		"a secret's file, or ":     {ExchangeServer: config.ExchangeServer{URL: "https://sts", Client: config.ExchangeClient{ID: "x"}}},
	} {
		entry := config.Provider{Entry: pluginhost.Entry{Name: "p"}}
		entry.Token = config.Token{TokenSource: config.TokenSource{Env: "X"}, Exchange: []config.Exchange{step}}
		if _, err := Authority(entry, nil, NewTokenCache(environ.Vars{"MY_TOKEN=mine"}, silent)); err == nil || !strings.Contains(err.Error(), "providers.p.token.exchange.0: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestCommandGetsMinimalEnvironment(t *testing.T) {
	got := strings.Join(CommandEnv(environ.Vars{"SECRET=x", "LANG=C"}), "\n")
	if strings.Contains(got, "SECRET") || !strings.Contains(got, "LANG=C") {
		t.Errorf("it gets %s", got)
	}
}
