package agent_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/names"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestReservedNamesAreNotOrderedOnDemand(t *testing.T) {
	any, err := names.New("**")
	must(t, err)
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.OnDemand = &ondemand.Config{
		Rules:    []ondemand.Rule{{Name: "any", Patterns: any, Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour}}},
		Reserved: func(name string) bool { return name == "all" },
	}
	a, err := agent.New(cfg)
	must(t, err)
	defer a.Close()
	for asked, want := range map[string]bool{"ALL": false, "Default": false, "a.example.org": true} {
		stop, err := a.Secrets().Watch(secret.Caller{}, asked, func(string) {})
		must(t, err)
		defer stop()
		if _, err := a.Secrets().Peek(secret.Caller{}, asked); errors.Is(err, secret.ErrUnknown) == want {
			t.Errorf("%s: %v", asked, err)
		}
	}
}

func TestConfiguredWildcardCoversNamesOnDemand(t *testing.T) {
	any, err := names.New("**")
	must(t, err)
	issuer := catest.NewCA(catest.Options{})
	cfg := config(t, issuer)
	wild := pki.Identity{DNSNames: []string{"*.shop.example.org"}}
	cfg.Secrets = append(cfg.Secrets, secret.Spec{Name: "wild", Kind: secret.KeyPair, Authorities: []string{"test"}, Identity: wild, TTL: time.Hour})
	cfg.OnDemand = &ondemand.Config{
		Rules: []ondemand.Rule{{Name: "any", Patterns: any, Cover: []string{"wild"}, Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour}}},
	}
	a, err := agent.New(cfg)
	must(t, err)
	defer a.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	want, err := secret.Get(ctx, a.Secrets(), secret.Caller{}, "wild")
	must(t, err)
	for asked, covered := range map[string]bool{"a.shop.example.org": true, "B.shop.example.org": true, "a.example.org": false} {
		got, err := secret.Get(ctx, a.Secrets(), secret.Caller{}, asked)
		if err != nil || (got.Fingerprint == want.Fingerprint) != covered {
			t.Errorf("%s: %v, %v, want the wildcard's: %t", asked, got, err, covered)
		}
	}
}

// Between a watch that is refused and the answer to it, another stream may get the certificate. The first
// one is served it, and must see its rotation.
func TestNameThatWasRefusedIsWatchedForOthers(t *testing.T) {
	any, err := names.New("**")
	must(t, err)
	cfg := config(t, catest.NewCA(catest.Options{}))
	decider := &answer{}
	cfg.OnDemand = &ondemand.Config{
		Rules: []ondemand.Rule{{Name: "any", Patterns: any, Ask: decider, Names: 1, Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour}}},
	}
	a, err := agent.New(cfg)
	must(t, err)
	defer a.Close()
	const name = "a.example.org"
	watch := func() (notices chan string, stop func()) {
		notices = make(chan string, 100)
		stop, err := a.Secrets().Watch(secret.Caller{}, name, func(name string) { notices <- name })
		must(t, err)
		return notices, stop
	}
	first, stop := watch()
	defer stop()
	if _, err := a.Secrets().Peek(secret.Caller{}, name); !errors.Is(err, secret.ErrUnknown) {
		t.Fatal(err)
	}
	decider.yes.Store(true)
	_, stopOther := watch()
	defer stopOther()
	select {
	case got := <-first:
		if got != name {
			t.Errorf("notice of %q", got)
		}
	case <-time.After(time.Minute):
		t.Error("the first stream was not notified")
	}
}

// answer remembers what it is set to.
type answer struct{ yes atomic.Bool }

func (a *answer) Recall(string) (allowed, known bool)           { return a.yes.Load(), true }
func (a *answer) Allowed(context.Context, string) (bool, error) { return a.yes.Load(), nil }
