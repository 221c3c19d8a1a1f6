package agent

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/identities"
)

func TestStreamsWithoutCertificateMakeNothingDue(t *testing.T) {
	end := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		counts identities.Counts
		due    bool
	}{
		"strangers":        {identities.Counts{InFlight: 5, Waiting: 1000, Failing: 3}, false},
		"all is well":      {identities.Counts{NextExpiry: end}, false},
		"renewals failing": {identities.Counts{NextExpiry: end, Failing: 1}, true},
		"renewals pending": {identities.Counts{NextExpiry: end, Pending: 1}, true},
	} {
		if got, due := dueOfMany(test.counts); due != test.due || due && !got.Equal(end) {
			t.Errorf("%s: %s, %t", name, got, due)
		}
	}
}
