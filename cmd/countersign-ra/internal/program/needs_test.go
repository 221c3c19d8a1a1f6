package program

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
)

// All replicas have the same API server: if each left the Service, clients would get no answer at all.
func TestSharedDependencyTakesNoReplicaOut(t *testing.T) {
	t.Parallel()
	r, home, _ := newMesh(t, forMesh)
	for _, n := range r.report(t).Needs {
		if n.Error != "" {
			t.Errorf("%+v", n)
		}
	}
	home.away.Store(true)
	r.until(t, "the Lease cannot be reached", func() bool {
		return strings.Contains(r.report(t).NotReady, "the Lease cannot be reached")
	})
	r.measures(t, `countersign_ra_dependency{dependency="lease"} 0`, `countersign_ra_dependency{dependency="audit_log"} 1`)
	if code, why := r.page("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d %s", code, why)
	}
	home.away.Store(false)
	r.until(t, "the Lease can be reached", func() bool {
		_, metrics := r.page("/metrics")
		return strings.Contains(metrics, `countersign_ra_dependency{dependency="lease"} 1`)
	})
}

func TestNoProviderThatIsReadyIsADependency(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]overview.Provider{
		"":                     nil,
		"a is backoff: killed": {{Name: "a", State: "backoff", LastError: "killed"}},
	} {
		if err := noneReady(all); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", all, err)
		}
		if err := noneReady(append(all, overview.Provider{Name: "b", State: "ready"})); err != nil {
			t.Error(err)
		}
	}
}

func TestDocumentListsDependencies(t *testing.T) {
	t.Parallel()
	document := read(t, filepath.Join("..", "..", "..", "..", "docs", "ra.md"))
	for _, n := range needs {
		leaves := "yes"
		if n.shared {
			leaves = "until it was there once"
		}
		if row := fmt.Sprintf("| %s | %s | %s |", n.name, n.effect, leaves); !strings.Contains(document, row) {
			t.Errorf("docs/ra.md lacks the row\n%s", row)
		}
	}
}
