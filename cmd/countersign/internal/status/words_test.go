package status

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestLifeBarShowsNowAndRenewal(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := Report{At: now}
	item := &secret.Item{Kind: secret.KeyPair, NotBefore: now.Add(-2 * time.Hour), Issued: now.Add(-time.Hour), RenewAt: now.Add(time.Hour), NotAfter: now.Add(3 * time.Hour)}
	if l := r.LifeOf(item); l.Gone != 250 || l.Turn != 500 || l.Left() != 500 || l.Percent() != 25 || !l.From.Equal(item.Issued) {
		t.Errorf("got %+v", l)
	}
	item.Kind = secret.TrustBundle // its life is its roots'
	if l := r.LifeOf(item); l.Gone != 400 || !l.From.Equal(item.NotBefore) {
		t.Errorf("got %+v", l)
	}
	item.RenewAt = time.Time{}
	if l := r.LifeOf(item); l.Turn != 666 { // a third of its life
		t.Errorf("the next root is due at %d", l.Turn)
	}
	r.At = now.Add(5 * time.Hour)
	if l := r.LifeOf(item); l.Gone != width {
		t.Errorf("after its end: %+v", l)
	}
	if l := r.LifeOf(&secret.Item{}); l.Gone != width {
		t.Errorf("of no time at all: %+v", l)
	}
}

func TestEveryReasonAndActionHasAdvice(t *testing.T) {
	for _, reason := range ca.Reasons() {
		if advice[reason.String()] == "" || does[ca.ActionFor(&ca.Error{Reason: reason})] == "" {
			t.Errorf("there is none for %q", reason)
		}
	}
	// The checks of pki.CheckError.
	for _, check := range []string{"format", "key", "usage", "ca", "names", "roots", "not-before", "not-after", "expired", "chain"} {
		if advice[check] == "" {
			t.Errorf("there is none for the check %q", check)
		}
	}
}

func TestPendingRequestIsAStateOfItsOwn(t *testing.T) {
	for held, want := range map[bool]string{true: "held; the CA has not decided on the renewal yet", false: "not held: the CA has not decided yet"} {
		if got := (Report{}).BadgeOf(secret.Status{Held: held, Pending: &secret.Failure{}}); got != (badge{want, fair}) {
			t.Errorf("held %t: %+v", held, got)
		}
	}
}

func TestSummaryShowsWorstState(t *testing.T) {
	held := secret.Status{Held: true}
	failing := secret.Status{Held: true, Failure: &secret.Failure{}}
	for _, c := range []struct {
		name      string
		secrets   []secret.Status
		providers []overview.Provider
		want      badge
	}{
		{"all well", []secret.Status{held}, []overview.Provider{{State: "ready"}}, badge{"All secrets are held.", "good"}},
		{"one expired", []secret.Status{held, {ExpiredSince: time.Unix(1, 0)}}, nil, badge{"1 of 2 secrets held.", "bad"}},
		{"one failing", []secret.Status{held, failing}, nil, badge{"All secrets are held.", "fair"}},
		{"one pending", []secret.Status{held, {Held: true, Pending: &secret.Failure{}}}, nil, badge{"All secrets are held.", "fair"}},
		{"a provider away", []secret.Status{held}, []overview.Provider{{State: "ready"}, {State: "backoff"}}, badge{"All secrets are held. 1 of 2 providers ready.", "fair"}},
	} {
		if got := (Report{Secrets: c.secrets, Providers: c.providers}).Summary(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
