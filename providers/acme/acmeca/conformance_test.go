//go:build e2e

package acmeca

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// quick is a Pebble that has each look at an order come soon.
var quick = odd{config: map[string]any{"retryAfter": map[string]int{"authz": 0, "order": 0}}}

func (p *pebble) kit(t *testing.T) conformance.Kit {
	s := p.settings(t)
	return conformance.Kit{
		Settings: map[string]any{
			"url": p.url, "root_file": s.RootFile, "roots": string(s.Roots), "state_dir": s.StateDir, "accept_terms": true, "listen": s.Listen,
		},
		WrongSettings:   map[string]any{"url": p.url, "state_dir": "relative"},
		Identity:        conformance.Names{DNSNames: []string{"web.example.org"}},
		RefusedIdentity: conformance.Names{SPIFFEID: "spiffe://example.org/web"},
		Keys:            []pki.KeyType{pki.ECDSAP256, pki.RSA2048},
		CallTimeout:     conformance.Duration(time.Minute),
	}
}

func TestRealConformance(t *testing.T) {
	p := startPebble(t, quick)
	open := func(_ context.Context, s Settings) (*CA, error) { return Open(s) }
	conformance.Run(t, p.kit(t), provider.Define("acme", "1", open).WithFacts(provider.Facts{FixedLifetime: true}).Provider)
}

func TestRealBinaryConformance(t *testing.T) {
	p := startPebble(t, quick)
	text, err := json.Marshal(p.kit(t))
	must(t, err)
	must(t, os.WriteFile(p.path("kit.json"), text, 0o600))
	// Some 300 certificates, which takes longer than testkit.Run waits.
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, testkit.Program(t, "countersign"), "provider", "test", "--quiet", testkit.Program(t, "countersign-provider-acme"), "--kit", p.path("kit.json"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
