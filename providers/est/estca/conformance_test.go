package estca

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

const stranger = ca.Token("another-password-than-that")

func kit(s *est) conformance.Kit {
	settings := s.settings()
	return conformance.Kit{
		Settings:      map[string]any{"url": settings.URL, "root_file": settings.RootFile, "username": user},
		WrongSettings: map[string]any{"url": "http://est.example.org"},
		Identity:      conformance.Names{SPIFFEID: web, DNSNames: []string{"web.example.org"}},
		Token:         password,
		RefusedToken:  stranger,
		TokenRequired: true,
		CallTimeout:   conformance.Duration(time.Minute), // on a busy machine
	}
}

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	t.Parallel()
	open := func(_ context.Context, s Settings) (*CA, error) { return Open(s) }
	conformance.Run(t, kit(newServer(t)), provider.Define("est", "1", open).WithFacts(provider.Facts{FixedLifetime: true}).Provider)
}

// kitFile is a kit as `countersign provider test` reads it.
type kitFile struct {
	conformance.Kit
	TokenFile        string `json:"token_file"`
	RefusedTokenFile string `json:"refused_token_file"`
}

func TestBinaryConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	t.Parallel()
	s := newServer(t)
	text, err := json.Marshal(kitFile{kit(s), s.write(t, "password", []byte(password)), s.write(t, "stranger", []byte(stranger))})
	must(t, err)
	testkit.Run(t, "countersign", "provider", "test", "--quiet", testkit.Program(t, "countersign-provider-est"), "--kit", s.write(t, "kit.json", text))
}
