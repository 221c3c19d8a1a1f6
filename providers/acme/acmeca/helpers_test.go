package acmeca

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/countersign-dev/countersign/sdk/catest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// otherCA is one that no server here knows.
func otherCA() *catest.CA { return catest.NewCA(catest.Options{}) }
