package output_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/output"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// rotating is a manager whose certificate is replaced when the test asks for it.
type rotating struct {
	*secret.Manager
	t *testing.T
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	return newRotatingOf(t, "")
}

// newRotatingOf has keys of a type, also the authority's.
func newRotatingOf(t *testing.T, kind pki.KeyType) *rotating {
	t.Helper()
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	must(t, err)
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: catest.NewCA(catest.Options{KeyType: kind, Intermediates: 1})}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, KeyType: kind, TTL: time.Hour, Authorities: []string{"test"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
	})
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return &rotating{m, t}
}

func (r *rotating) held(name string) *secret.Item {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	item, err := r.Get(ctx, secret.Caller{}, name)
	must(r.t, err)
	return item
}

func (r *rotating) rotate() { must(r.t, r.Release(secret.Caller{}, "default")) }

// running is an output with its events.
type running struct {
	t      *testing.T
	events chan output.EventType
	log    *logtest.Log
}

func start(t *testing.T, cfg output.Config, source secret.Source) *running {
	t.Helper()
	r := &running{t, make(chan output.EventType, 100), &logtest.Log{}}
	cfg.Name, cfg.Pair, cfg.Bundle = "test", "default", "ROOTCA"
	if cfg.Files == nil {
		cfg.Files = output.IstioFiles()
	}
	cfg.Observe = func(e output.Event) { r.events <- e.Type }
	cfg.Log = r.log.Logger()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- output.Run(ctx, cfg, source) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
	return r
}

func (r *running) await(want output.EventType) {
	r.t.Helper()
	for r.next(want) != want {
	}
}

func (r *running) next(want output.EventType) output.EventType {
	r.t.Helper()
	select {
	case got := <-r.events:
		return got
	case <-time.After(patience):
		r.t.Fatalf("%s did not happen:\n%s", want, r.log)
	}
	return ""
}

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elements...))
	must(t, err)
	return content
}
