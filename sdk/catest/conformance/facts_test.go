package conformance

import (
	"testing"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// An author states the facts once, in the provider.
func TestKitReadsTheProvidersFacts(t *testing.T) {
	facts := ca.Facts{FixedLifetime: true, NameMatch: ca.MatchTrustDomain, NeedsToken: true}
	stated := wrapped(func(o *outer) {
		o.metadata = func(m wire.Metadata) (wire.Metadata, error) { m.Facts = facts; return m, nil }
	})
	for _, subject := range []Subject{Value(stated), OverWire(stated)} {
		s := NewSession(Kit{Settings: goodKit().Settings}, subject)
		defer s.Close()
		if !s.fixedLifetime() || !s.tokenRequired() || s.nameCheck() != pki.TrustDomainName {
			t.Errorf("%s: fixed lifetime %t, token %t, names %d", subject.Form, s.fixedLifetime(), s.tokenRequired(), s.nameCheck())
		}
	}
	s := NewSession(Kit{Settings: goodKit().Settings, NameCheck: "any"}, Value(good()))
	defer s.Close()
	if s.fixedLifetime() || s.tokenRequired() || s.nameCheck() != pki.AnyName {
		t.Errorf("without facts: fixed lifetime %t, token %t, names %d", s.fixedLifetime(), s.tokenRequired(), s.nameCheck())
	}
}

func TestStatedFixedLifetimeAllowsALongerLife(t *testing.T) {
	const tooLong = "SIGN-18"
	stated := func() wire.Provider {
		o := around(mutants()[tooLong]())
		o.metadata = func(m wire.Metadata) (wire.Metadata, error) { m.Facts.FixedLifetime = true; return m, nil }
		return o
	}
	for want, make := range map[Outcome]func() wire.Provider{Failed: mutants()[tooLong], Unrun: stated} {
		s := NewSession(goodKit(), Value(make))
		defer s.Close()
		for _, check := range upTo(is(tooLong)) {
			if got := s.Do(t.Context(), check); check.ID == tooLong && got.Outcome != want {
				t.Errorf("%s, want %s: %s", got.Outcome, want, got.Seen)
			}
		}
	}
}
