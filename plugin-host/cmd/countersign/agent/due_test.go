package agent

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestProviderDueTimeIsEarliestDueExpiry(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	in := now.Add
	pair := func(change func(*secret.Status)) secret.Status {
		s := secret.Status{Kind: secret.KeyPair.String(), Authorities: []string{"one", "two"}, Held: true,
			Item: &secret.Item{NotAfter: in(time.Hour), RenewAt: in(time.Minute)}}
		change(&s)
		return s
	}
	fresh := pair(func(*secret.Status) {})
	late := pair(func(s *secret.Status) { s.Item = &secret.Item{NotAfter: in(time.Minute), RenewAt: in(-time.Second)} })
	failing := pair(func(s *secret.Status) { s.Failure = &secret.Failure{} })
	bare := pair(func(s *secret.Status) { s.Held, s.Item = false, nil })
	for name, test := range map[string]struct {
		secrets []secret.Status
		end     time.Time
		due     bool
	}{
		"nothing":          {nil, time.Time{}, false},
		"fresh":            {[]secret.Status{fresh}, time.Time{}, false},
		"late":             {[]secret.Status{fresh, late}, in(time.Minute), true},
		"the first to end": {[]secret.Status{failing, late, bare}, in(time.Minute), true},
		"asked for":        {[]secret.Status{pair(func(s *secret.Status) { s.Asking = true })}, in(time.Hour), true},
		"not held":         {[]secret.Status{bare}, time.Time{}, true},
		"idle":             {[]secret.Status{pair(func(s *secret.Status) { s.Held, s.Item, s.Released = false, nil, true })}, time.Time{}, false},
		"of another":       {[]secret.Status{pair(func(s *secret.Status) { s.Authorities, s.Asking = []string{"two"}, true })}, time.Time{}, false},
		"roots":            {[]secret.Status{pair(func(s *secret.Status) { s.Kind, s.Asking = secret.TrustBundle.String(), true })}, time.Time{}, false},
		"from a file":      {[]secret.Status{pair(func(s *secret.Status) { s.Authorities, s.Item.RenewAt = nil, time.Time{} })}, time.Time{}, false},
	} {
		if end, due := dueOf(test.secrets, "one", now); !end.Equal(test.end) || due != test.due {
			t.Errorf("%s: %s, %t; want %s, %t", name, end, due, test.end, test.due)
		}
	}
}

func TestStreamsWithoutCertificateMakeNothingDue(t *testing.T) {
	end := time.Unix(1_000_000, 0)
	for name, test := range map[string]struct {
		counts identities.Counts
		due    bool
	}{
		"strangers":        {identities.Counts{InFlight: 5, Waiting: 1000, Failing: 3}, false},
		"all is well":      {identities.Counts{NextExpiry: end}, false},
		"renewals failing": {identities.Counts{NextExpiry: end, Failing: 1}, true},
	} {
		if got, due := dueOfMany(test.counts); due != test.due || due && !got.Equal(end) {
			t.Errorf("%s: %s, %t", name, got, due)
		}
	}
}
