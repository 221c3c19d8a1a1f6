package demand

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const head = "dev: true\nproviders: [{name: file, settings: {dir: ./ca}}, {name: acme}]\ndefault_provider: file\nsecrets:\n"

func complete(t *testing.T, secrets string) config.Config {
	t.Helper()
	c, _, err := config.Read(config.Input{File: []byte(head + secrets), FileName: "countersign.yaml"})
	if err == nil {
		err = c.Complete()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newRules(t *testing.T) *Rules {
	t.Helper()
	r := New(nil, slog.New(slog.DiscardHandler))
	t.Cleanup(r.Close)
	return r
}

func take(t *testing.T, r *Rules, secrets string) *Next {
	t.Helper()
	next, err := r.Prepare(complete(t, secrets))
	if err != nil {
		t.Fatal(err)
	}
	next.Take()
	return next
}

func TestRuleIsThatOfItsSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "allowed")
	if err := os.WriteFile(file, []byte("a.example.org\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next := take(t, newRules(t), `- {name: shops, match: "*.example.org", key_type: ecdsa-p384, ttl: 2h, on_demand: {ask: {file: `+file+`}, names: 5, wait: 2s, idle: 3d}}
- {match: x.example.org, provider: acme}
`)
	if len(next.Rules()) != 2 {
		t.Fatalf("there are %d rules", len(next.Rules()))
	}
	r := next.Rules()[0]
	if r.Name != "shops" || r.Certificate.Authorities[0] != "file" || r.Account != "file" || r.Certificate.KeyType != pki.ECDSAP384 || r.Certificate.TTL != 2*time.Hour || r.Names != 5 || r.Wait != 2*time.Second || r.Idle != 72*time.Hour || !r.Evict {
		t.Errorf("the rule is %+v", r)
	}
	if next.Rules()[1].Evict {
		t.Error("a rule of a costly provider drops names for new ones")
	}
	if _, ok := r.Patterns.Match("b.example.org"); !ok {
		t.Error("the pattern does not match")
	}
	for name, want := range map[string]bool{"a.example.org": true, "b.example.org": false} {
		if allowed, err := r.Ask.Allowed(t.Context(), name); allowed != want || err != nil {
			t.Errorf("%s: %t, %v", name, allowed, err)
		}
	}
}

func TestURLIsAskedOncePerNameOverAReload(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Query().Get("domain") != "a.example.org" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	rules := newRules(t)
	allowed := func(next *Next) bool {
		t.Helper()
		yes, err := next.Rules()[0].Ask.Allowed(t.Context(), "a.example.org")
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	rule := `- {match: "*.example.org", on_demand: {ask: {url: "` + server.URL + `"}, wait: WAIT}}` + "\n"
	if !allowed(take(t, rules, strings.Replace(rule, "WAIT", "2s", 1))) || !allowed(take(t, rules, strings.Replace(rule, "WAIT", "3s", 1))) || asked != 1 {
		t.Errorf("the URL was asked %d times, want once: the answer is remembered over a reload", asked)
	}
	dropped, err := rules.Prepare(complete(t, `- {match: "*.example.org"}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	dropped.Drop()
	if !allowed(take(t, rules, strings.Replace(rule, "WAIT", "4s", 1))) || asked != 1 {
		t.Errorf("the URL was asked %d times after a reload that failed, want once", asked)
	}
}

func TestCommandDecides(t *testing.T) {
	r := take(t, newRules(t), `- {match: "**", on_demand: {ask: {command: [/bin/sh, -c, 'test "$1" = a.example.org', sh]}}}`+"\n").Rules()[0]
	for name, want := range map[string]bool{"a.example.org": true, "b.example.org": false} {
		if allowed, err := r.Ask.Allowed(t.Context(), name); allowed != want || err != nil {
			t.Errorf("%s: %t, %v", name, allowed, err)
		}
	}
}

func TestMissingFileOfNamesIsAFault(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if err := Faults(complete(t, `- {match_file: `+missing+`}`+"\n")); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("got %v", err)
	}
	if err := Faults(complete(t, `- {match: "**"}`+"\n")); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

func TestStreamMayHoldTheNamesOfAllRules(t *testing.T) {
	if n := MaxNames(complete(t, `- {match: "**", on_demand: {names: 100}}`+"\n")); n != 10_200 {
		t.Errorf("a stream may hold %d names", n)
	}
}

func TestWhatAReloadCannotApplyNeedsARestart(t *testing.T) {
	const state = "state: {dir: ./state, key_file: ./key}\n"
	const none, one, more = "- {name: default, dns_names: [a.test]}\n", "- {name: one, match: \"*.one.test\", on_demand: {names: 100}}\n", "- {name: one, match: \"*.one.test\", on_demand: {names: 200}}\n"
	const two = "- {name: two, match: \"*.two.test\", on_demand: {names: 100}}\n"
	for name, c := range map[string]struct {
		started, now, rest string
		want               []string
	}{
		"the first rule":             {none, one, state, []string{"secrets.one.on_demand.names"}},
		"more names":                 {one, more, state, []string{"secrets.one.on_demand.names"}},
		"another rule":               {one, one + two, state, []string{"secrets.two.on_demand.names"}},
		"covered names":              {one, strings.Replace(one, "names: 100", "names: 100, cover: [w]", 1), "- {name: w, dns_names: [\"*.one.test\"]}\n" + state, []string{"secrets.one.on_demand.names"}},
		"fewer names":                {more, one, state, nil},
		"as many names in two rules": {more, one + two, state, nil},
		"no rule":                    {one, none, state, nil},
		"none before, and none now":  {none, none, state, nil},
	} {
		if got := NeedRestart(complete(t, c.started+c.rest), complete(t, c.now+c.rest)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// memory is a storage.
type memory struct {
	mu      sync.Mutex
	records map[string]secret.Record
}

func (m *memory) Load(_ context.Context, name string) (secret.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[name], nil
}

func (m *memory) Store(_ context.Context, name string, r secret.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[name] = r
	return nil
}

func TestBudgetCountsOverReloadAndRestart(t *testing.T) {
	storage := &memory{records: map[string]secret.Record{}}
	const rule = `- {match: "**", on_demand: {budget: {new: 3/day, burst: 3}, wait: 1s}}` + "\n"
	spend := func(r *Rules, wait string) error {
		b := take(t, r, strings.Replace(rule, "1s", wait, 1)).Rules()[0].Budget
		return b.Take(time.Now(), "a.example.org", []string{"a.example.org"}, "file")
	}
	first := newRules(t)
	first.Keep(t.Context(), storage)
	if err := errors.Join(spend(first, "1s"), spend(first, "2s")); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second := newRules(t)
	second.Keep(t.Context(), storage)
	if err := spend(second, "1s"); err != nil {
		t.Errorf("the third of three: %v", err)
	}
	if err := spend(second, "2s"); ca.ReasonFor(err) != ca.RateLimited {
		t.Errorf("the fourth of three, after a reload and a restart: %v", err)
	}
}

func TestUnreadableBudgetRecordBeginsAsUsedUp(t *testing.T) {
	storage := &memory{records: map[string]secret.Record{ledgerRecord: {Content: []byte("{")}}}
	r := newRules(t)
	r.Keep(t.Context(), storage)
	b := take(t, r, `- {match: "**", on_demand: {budget: {new: 3/day, burst: 3}}}`+"\n").Rules()[0].Budget
	if err := b.Take(time.Now(), "a.example.org", []string{"a.example.org"}, "file"); ca.ReasonFor(err) != ca.RateLimited {
		t.Errorf("the first order: %v", err)
	}
	b = take(t, r, `- {match: "**", on_demand: {budget: {new: 3/s, burst: 3}}}`+"\n").Rules()[0].Budget
	if err := b.Take(time.Now().Add(time.Second), "a.example.org", []string{"a.example.org"}, "file"); err != nil {
		t.Errorf("a second after a reload with a higher rate: %v", err)
	}
}

// A rule for any name must not give out the certificate of a host "default", or "all" for SPIRE's bundles.
func TestNamesOfWorkloadsAreReserved(t *testing.T) {
	for name, want := range map[string]bool{"default": true, "rootca": true, "ROOTCA": true, "ALL": true, "all": true, "all.example.org": false, "web": false} {
		if Reserved(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}
