package rotation_test

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation/fleet"
)

// A thousand agents of 10^5 that share seven requests a second.
var thousand = fleet.Config{Agents: 1000, Quota: 0.07, Life: 24 * time.Hour, Until: 72 * time.Hour}

func TestFleetStartsWithinItsQuota(t *testing.T) {
	for name, retryInfo := range map[string]time.Duration{
		"without a retry-after": 0, "which asks for 1 minute": time.Minute, "which asks for 10 minutes": 10 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			c := thousand
			c.RetryInfo = retryInfo
			got := fleet.Run(c)
			t.Logf("%+v, %.1f calls for each certificate, then %.2f; complete at %.2f of the bound",
				got, got.Cold.PerCertificate(), got.Steady.PerCertificate(), float64(got.Complete)/float64(c.Bound()))
			if calls := got.Cold.PerCertificate(); calls > 10 {
				t.Errorf("%.1f calls for each certificate at the start", calls)
			}
			if got.Used < 0.85 {
				t.Errorf("%.0f %% of the quota are used", 100*got.Used)
			}
			// All but three of 1,000 runs need 1.2 of it.
			if got.Complete == 0 || got.Complete > c.Bound()*13/10 {
				t.Errorf("complete after %s, the bound is %s", got.Complete, c.Bound())
			}
			if calls := got.Steady.PerCertificate(); calls > 1.2 || got.Expired > 0 {
				t.Errorf("%.2f calls for each certificate later; %d expired", calls, got.Expired)
			}
		})
	}
}
