package citadelca

import (
	"context"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	sdk "github.com/countersign-dev/countersign/sdk/provider"
)

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	server := start(t)
	settings := server.settings(t)
	open := func(_ context.Context, s Settings) (*CA, error) { return Open(s) }
	conformance.Run(t, conformance.Kit{
		Settings:      map[string]any{"address": settings.Address, "root_file": settings.RootFile},
		WrongSettings: map[string]any{"address": "istiod"},
		Identity:      conformance.Names{SPIFFEID: webID},
		Token:         theToken,
		CallTimeout:   conformance.Duration(time.Minute), // on a busy machine
	}, sdk.Define("citadel", "1", open).Provider)
}
