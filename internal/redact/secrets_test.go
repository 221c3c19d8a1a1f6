package redact

import (
	"fmt"
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// Many values that are refused must not push out the one in use.
func TestSecretThatIsAddedAgainStays(t *testing.T) {
	var s Secrets
	for n := range 2 * maxSecrets {
		s.Add("in-use")
		s.Add(ca.Token(fmt.Sprint("refused-", n)))
	}
	all := s.Values()
	if len(all) != maxSecrets || !slices.Contains(all, "in-use") || slices.Contains(all, "refused-0") {
		t.Errorf("%d values, the first is %q", len(all), string(all[0]))
	}
}
