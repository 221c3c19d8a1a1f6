package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/state"
)

// supervised asks what is due for each request, as a provider's supervisor does.
type supervised struct {
	ca.Client
	providers *providers
}

func (s supervised) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	for range 2 {
		s.providers.due("ca")
	}
	return s.Client.CSRSign(ctx, req)
}

// crowded runs an agent with n secrets through the stages of its life and returns what each
// allocated, in bytes.
func crowded(t *testing.T, n int) map[string]uint64 {
	t.Helper()
	folder, err := state.Open(filepath.Join(t.TempDir(), "state"), []byte("q8Zr1LkVw7Tn3XbE5mCy9HsJ2uPd6FgA"))
	if err != nil {
		t.Fatal(err)
	}
	p := &providers{}
	m := metrics.New(&p.recorder, p.all)
	cfg := agent.Config{
		Authorities: []secret.Authority{{Name: "ca", Client: supervised{catest.NewCA(catest.Options{}), p}}},
		Socket:      sds.Config{Path: filepath.Join(t.TempDir(), "s")},
		Storage:     folder, Observe: m.Secret, Log: slog.New(slog.DiscardHandler),
	}
	for i := range n {
		name := fmt.Sprintf("name-%d", i)
		id, err := pki.NewIdentity("", []string{name + ".example.org"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Secrets = append(cfg.Secrets, secret.Spec{Name: name, Kind: secret.KeyPair, Authorities: []string{"ca"}, Identity: id})
	}
	cost := map[string]uint64{}
	run := func(stage string, rest func(*agent.Agent)) {
		p.agent.Store(nil)
		before := allocated()
		a, err := agent.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		p.agent.Store(a)
		awaitAll(t, a)
		cost[stage] = allocated() - before
		rest(a)
	}
	run("order", func(a *agent.Agent) {
		report := func() status.Report { return reportOf(a, p, &proxyChild{}, jwtSVIDs{}, witSVIDs{}, overview.Machine{}) }
		m.Watch(a, report)
		before := allocated()
		pages := http.NewServeMux()
		pages.Handle("/metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}))
		pages.Handle("/{$}", status.Page(report))
		for _, path := range []string{"/metrics", "/"} {
			pages.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		}
		cost["pages"] = allocated() - before
		before = allocated()
		if err := a.Reload(cfg.Secrets, cfg.Authorities); err != nil {
			t.Fatal(err)
		}
		a.Retry("")
		awaitAll(t, a)
		cost["reload"] = allocated() - before
	})
	run("restart", func(*agent.Agent) {})
	return cost
}

// awaitAll waits until all secrets are held.
func awaitAll(t *testing.T, a *agent.Agent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, s := range a.Status() {
		if _, err := secret.Get(ctx, a.Secrets(), secret.Caller{}, s.Name); err != nil {
			t.Fatal(err)
		}
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// A call for one secret that takes all of them shows here: bytes, unlike times, are the same on
// a busy machine.
func TestTwiceTheSecretsCostTwiceAsMuch(t *testing.T) {
	if testing.Short() {
		t.Skip("orders a thousand certificates")
	}
	const n, most = 150, 2.2
	less, more := crowded(t, n), crowded(t, 2*n)
	for stage, bytes := range less {
		if ratio := float64(more[stage]) / float64(bytes); ratio > most {
			t.Errorf("%s: %d secrets allocate %d bytes and %d secrets %d, %.2f times as much; want %.1f at most", stage, n, bytes, 2*n, more[stage], ratio, most)
		} else {
			t.Logf("%s: %d bytes for each of %d, ratio %.2f", stage, bytes/n, n, ratio)
		}
	}
}
