package stepca

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
)

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	s := newStep(t)
	settings := s.settings()
	conformance.Run(t, conformance.Kit{
		Settings: map[string]any{
			"url": settings.URL, "root_file": settings.RootFile, "provisioner": settings.Provisioner, "key_file": settings.KeyFile,
		},
		WrongSettings: map[string]any{"url": "http://ca.example.org"},
		Identity:      conformance.Names{SPIFFEID: web},
		CallTimeout:   conformance.Duration(time.Minute), // on a busy machine
	}, provider.Define("step", "1", Open).Provider)
}
