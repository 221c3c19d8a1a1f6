package wiring

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestTrustBundleSpecTakesNamesToOrderRoots(t *testing.T) {
	entry := config.Secret{Name: config.RootCA, Kind: config.TrustBundle, Providers: []string{"citadel"}}
	if spec, err := Spec(entry, config.Rotation{}); err != nil || !spec.Identity.IsZero() || spec.Kind != secret.TrustBundle {
		t.Errorf("got %+v, %v", spec, err)
	}
	entry.SPIFFEID, entry.KeyType, entry.TTL = "spiffe://example.org/web", "ecdsa-p256", config.Duration{Duration: time.Hour}
	spec, err := Spec(entry, config.Rotation{Ratio: 0.5})
	if err != nil || spec.Identity.String() != entry.SPIFFEID || spec.Kind != secret.TrustBundle || spec.TTL != time.Hour {
		t.Errorf("got %+v, %v", spec, err)
	}
}
