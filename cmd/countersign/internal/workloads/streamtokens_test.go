package workloads

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

var silent = slog.New(slog.DiscardHandler)

// exchangingProvider is a provider with the ability.
type exchangingProvider struct {
	ca.Client
	asked  ca.TokenRequest
	asking func()
}

func (p *exchangingProvider) ExchangeToken(_ context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	p.asked = req
	p.asking()
	return ca.ExchangedToken{AccessToken: "by-provider-" + req.SubjectToken, Expiry: time.Now().Add(time.Hour)}, nil
}

func TestStreamTokenIsExchangedByItsProvider(t *testing.T) {
	calls := map[ca.Token]int{}
	provider := &exchangingProvider{}
	provider.asking = func() { calls[provider.asked.SubjectToken]++ }
	entry := config.Provider{Entry: pluginhost.Entry{Name: "p"}}
	entry.Token = config.Token{Exchange: []config.Exchange{{Provider: true, Scopes: []string{"sign"}}}}
	for own, peer := range map[string]ca.Token{"": "", "MY_TOKEN": "by-provider-mine"} {
		clear(calls)
		entry.Token.Env = own
		cache := wiring.NewTokenCache(environ.Vars{"MY_TOKEN=mine"}, silent)
		if _, err := wiring.Authority(entry, provider, cache); err != nil {
			t.Fatal(err)
		}
		hook := streamTokensOf(cache, "p").exchange()
		send := func(brought, want ca.Token) {
			t.Helper()
			if got, err := hook.Token(t.Context(), brought); got != want || err != nil {
				t.Errorf("sent %q (%v)", got.Reveal(), err)
			}
		}
		for range 2 {
			send("web", "by-provider-web")
			send("db", "by-provider-db")
		}
		send("", peer)
		if calls["web"] != 1 || calls["db"] != 1 {
			t.Errorf("exchanges: %v", calls)
		}
		hook.Rejected("by-provider-web")
		send("web", "by-provider-web")
		send("db", "by-provider-db")
		if calls["web"] != 2 || calls["db"] != 1 {
			t.Errorf("exchanges after one was rejected: %v", calls)
		}
	}
}

func TestStreamTokenIsSentAsIsWithoutExchange(t *testing.T) {
	cache := wiring.NewTokenCache(environ.Vars{"MY_TOKEN=mine"}, silent)
	if _, err := wiring.Authority(config.Provider{Entry: pluginhost.Entry{Name: "p"}}, nil, cache); err != nil {
		t.Fatal(err)
	}
	if hook := streamTokensOf(cache, "p").exchange(); hook.Token != nil || hook.Rejected != nil {
		t.Error("there is a hook for nothing to do")
	}
	entry := config.Provider{Entry: pluginhost.Entry{Name: "p"}}
	entry.Token.Env = "MY_TOKEN"
	if _, err := wiring.Authority(entry, nil, cache); err != nil {
		t.Fatal(err)
	}
	hook := streamTokensOf(cache, "p").exchange()
	for brought, want := range map[ca.Token]ca.Token{"web": "web", "": "mine"} {
		if got, err := hook.Token(t.Context(), brought); got != want || err != nil {
			t.Errorf("sent %q for %q (%v)", got.Reveal(), brought.Reveal(), err)
		}
	}
	hook.Rejected("web")
}

func TestRunningAgentFollowsItsAuthoritysExchanges(t *testing.T) {
	with := func(authority string, prefix ca.Token) *identities.Config {
		cfg := &identities.Config{Certificate: secret.Spec{Authorities: []string{authority}}}
		if prefix != "" {
			cfg.Exchange.Token = func(_ context.Context, t ca.Token) (ca.Token, error) { return prefix + t, nil }
		}
		return cfg
	}
	var followed Followed
	running := with("a", "old-")
	followed.Follow(running)
	for _, step := range []struct {
		of    string
		taken *identities.Config
		want  ca.Token
	}{{"b", with("b", "anothers-"), "old-web"}, {"a", with("a", "new-"), "new-web"}, {"a", with("a", ""), "web"}} {
		followed.Take(step.of, step.taken.Exchange)
		if got, err := running.Exchange.Token(t.Context(), "web"); got != step.want || err != nil {
			t.Errorf("sent %q, %v; want %q", got.Reveal(), err, step.want.Reveal())
		}
		running.Exchange.Rejected("web")
	}
}
