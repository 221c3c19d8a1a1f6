package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
)

// exported returns the metrics whose names begin so, each with its labels and value.
func exported(t *testing.T, prefix string, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), prefix)
		for _, m := range family.GetMetric() {
			labels := ""
			for _, label := range m.GetLabel() {
				labels += fmt.Sprintf(" %s=%s", label.GetName(), label.GetValue())
			}
			if ours {
				all[name+labels] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return all
}

func TestTokensAreExportedOnceTheyAreConfigured(t *testing.T) {
	var now status.Report
	r := prometheus.NewRegistry()
	r.MustRegister(reported(func() status.Report { return now }))
	for _, prefix := range []string{"countersign_jwt_svid_", "countersign_wit_svid_"} {
		if got := exported(t, prefix, r); len(got) != 0 {
			t.Errorf("without them: %v", got)
		}
	}
	s := jwtsvid.Status{
		Keys: []string{"a", "b"}, KeysAt: time.Unix(1700000000, 0), KeysFailure: &jwtsvid.Failure{}, Held: 3, Signed: 40, Refused: 5,
		Failures: map[string]int{"denied": 6, "reply": 0},
	}
	now.JWTSVIDs = status.JWTSVIDsOf("file", nil, s)
	now.WITSVIDs = &now.JWTSVIDs.Tokens
	want := map[string]float64{
		"signed_total provider=file": 40, "failures_total provider=file reason=denied": 6, "failures_total provider=file reason=reply": 0,
		"refused_audiences_total provider=file": 5, "held provider=file": 3, "keys provider=file": 2, "keys_timestamp_seconds provider=file": 1700000000, "keys_behind provider=file": 1,
	}
	if got := exported(t, "countersign_jwt_svid_", r); !maps.Equal(got, want) {
		t.Errorf("got %v of %v", got, slices.Sorted(maps.Keys(want)))
	}
	delete(want, "refused_audiences_total provider=file") // a WIT-SVID has no audience
	if got := exported(t, "countersign_wit_svid_", r); !maps.Equal(got, want) {
		t.Errorf("WIT-SVIDs: got %v of %v", got, slices.Sorted(maps.Keys(want)))
	}
}
