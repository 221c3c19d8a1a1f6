package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

// Each workload of an agent of many may have the bundles of foreign trust domains.
func TestForeignBundlesAreForAllWorkloads(t *testing.T) {
	f, err := openFederation(&config.Config{BundleEndpoints: []config.BundleEndpoint{{Name: "partner", Followed: config.Followed{TrustDomain: "partner.example", URL: "https://partner.example/bundle"}}}}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{Identities: &identities.Config{Bundles: []string{config.RootCA}}}
	f.join(&cfg)
	if want := []string{config.RootCA, "partner"}; !slices.Equal(cfg.Identities.Bundles, want) {
		t.Errorf("the workloads may have %q; want %q", cfg.Identities.Bundles, want)
	}
}

// The endpoint is away when the agent starts again: the roots of the last run are served, and verify the
// endpoint, in place of those in initial_file, which are out of date.
func TestForeignRootsOutliveARestart(t *testing.T) {
	folder, err := state.Open(filepath.Join(t.TempDir(), "state"), []byte(goodKey))
	if err != nil {
		t.Fatal(err)
	}
	last, outdated := certtest.Root(t), certtest.Root(t)
	for _, initial := range []*certtest.Pair{last, outdated} { // the roots of the first run are its initial ones
		f, secrets := follow(t, folder, initial)
		item, err := secrets.Peek(secret.Caller{}, "partner")
		if err != nil || !bytes.Equal(item.Roots, last.PEM()) {
			t.Errorf("%v, %v", item, err)
		}
		if got := f.kept("partner.example"); got.Len() != 1 || !got.Contains(last.Cert) {
			t.Errorf("the endpoint is verified by %v", got.Fingerprints())
		}
		if err := secrets.Close(); err != nil {
			t.Error(err)
		}
	}
}

// follow follows an endpoint that is away, until that was noticed.
func follow(t *testing.T, storage secret.Storage, initial *certtest.Pair) (*federated, *secret.Manager) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "initial.pem")
	if err := os.WriteFile(file, initial.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	away := config.Followed{TrustDomain: "partner.example", URL: "https://127.0.0.1:1", ServerID: "spiffe://partner.example/bundles", InitialFile: file}
	log := slog.New(slog.DiscardHandler)
	f, err := openFederation(&config.Config{BundleEndpoints: []config.BundleEndpoint{{Name: "partner", Followed: away}}}, storage, log)
	if err != nil {
		t.Fatal(err)
	}
	var cfg agent.Config
	f.join(&cfg)
	failed := make(chan secret.Event, 10)
	observe := func(e secret.Event) {
		if e.Kind == secret.Failed {
			failed <- e
		}
	}
	secrets, err := secret.New(secret.Config{Secrets: cfg.Secrets, Authorities: cfg.Authorities, Storage: storage, Observe: observe, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	f.begin(secrets)
	select {
	case <-failed:
	case <-time.After(time.Minute):
		t.Fatal("the endpoint was not asked")
	}
	return f, secrets
}
