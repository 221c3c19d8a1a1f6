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

// exported returns the metrics of JWT-SVIDs, each with its labels and value.
func exported(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "countersign_jwt_svid_")
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

func TestJWTSVIDsAreExportedOnceTheyAreConfigured(t *testing.T) {
	var now status.Report
	r := prometheus.NewRegistry()
	r.MustRegister(reported(func() status.Report { return now }))
	if got := exported(t, r); len(got) != 0 {
		t.Errorf("without them: %v", got)
	}
	now.JWTSVIDs = status.JWTSVIDsOf("file", nil, jwtsvid.Status{
		Keys: []string{"a", "b"}, KeysAt: time.Unix(1700000000, 0), KeysFailure: &jwtsvid.Failure{}, Held: 3, Signed: 40, Refused: 5,
		Failures: map[string]int{"denied": 6, "reply": 0},
	})
	want := map[string]float64{
		"signed_total provider=file": 40, "failures_total provider=file reason=denied": 6, "failures_total provider=file reason=reply": 0,
		"refused_audiences_total provider=file": 5, "held provider=file": 3, "keys provider=file": 2, "keys_timestamp_seconds provider=file": 1700000000, "keys_behind provider=file": 1,
	}
	if got := exported(t, r); !maps.Equal(got, want) {
		t.Errorf("got %v of %v", got, slices.Sorted(maps.Keys(want)))
	}
}
