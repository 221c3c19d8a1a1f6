// Package kubestore_test runs sdk/ondemand/kubestore against an API server in memory and real ones.
// The package's module has no client of Kubernetes to do so.
package kubestore_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/internal/test/fatal"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/kubeapi"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/ondemand/kubestore"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = programs.Remove()
		os.Exit(code)
	}))
}

var _ interface {
	ondemand.SharedStorage
	Status() secret.StorageStatus
} = (*kubestore.Store)(nil)

const (
	namespace = "certificates"
	web       = "a.shop.example.org"
)

var errAway = errors.New("no route to host")

var must = fatal.If

// page is docs/on-demand.md.
func page(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(programs.File(tb, "docs/on-demand.md"))
	must(tb, err)
	return string(text)
}

// machine has a store whose network can fail.
type machine struct {
	*kubestore.Store
	away atomic.Bool // each call fails
	dead atomic.Bool // each call hangs

	mu   sync.Mutex
	seen []string
}

func newMachine(t *testing.T, at *kubetest.Fake, change func(*kubestore.Config)) *machine {
	t.Helper()
	m := &machine{}
	cfg := kubestore.Config{
		API: kubeapi.Config{URL: "http://127.0.0.1", Transport: network{m, at}}, Namespace: namespace, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	m.Store, err = kubestore.Open(cfg)
	must(t, err)
	return m
}

func withCopies(cfg *kubestore.Config) { cfg.TLSSecrets = true }

// follow follows the changes until the test ends.
func (m *machine) follow(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Changes(ctx, m.changed)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func (m *machine) changed(e secret.Entry, deleted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what := "+" + e.Name
	if deleted {
		what = "-" + e.Name
	}
	m.seen = append(m.seen, what)
}

// news returns what was reported since the last call.
func (m *machine) news() []string {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.seen
	m.seen = nil
	return seen
}

// certificate is a record with a certificate of a name.
func certificate(name string, authority *catest.CA, ends time.Time) (secret.Entry, secret.Record) {
	chain, key := authority.Pair(0, "", name)
	content, err := json.Marshal(map[string]any{"version": 1, "pair": map[string]any{"chain": chain, "key": key}})
	if err != nil {
		panic(err)
	}
	e := secret.Entry{Name: name, Renew: ends.Add(-time.Hour).Truncate(time.Second), Ends: ends.Truncate(time.Second)}
	return e, secret.Record{Identity: "spiffe://example.org/web", Authority: "acme", Content: content}
}
