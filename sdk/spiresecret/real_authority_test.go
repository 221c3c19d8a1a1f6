//go:build e2e

package spiresecret_test

import (
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

// A real agent is away for longer than its certificates live: the CA signs meanwhile, and there is
// a certificate at each moment.
func TestRealSPIREAndCATakeTurns(t *testing.T) {
	s := startSPIRE(t)
	s.attest()
	s.register(web)
	m := s.manager(catest.NewCA(catest.Options{}))
	await := func(what, signer string, good func(*secret.Item) bool) (item *secret.Item) {
		t.Helper()
		s.poll(what, func() bool {
			got, err := m.Peek(agent, "default")
			if err != nil && item != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if item = got; err != nil || got.Authority != signer || !good(got) {
				return false
			}
			roots, err := m.Peek(agent, "ROOTCA")
			return err == nil && len(roots.RootFingerprints) == 2
		})
		return item
	}
	first := await("the first certificate", "spire", some)
	second := await("the second certificate", "spire", anotherThan(first))
	s.agent.Kill()
	given := await("a certificate of the CA", "ca", some)
	if now := time.Now(); now.After(second.NotAfter) {
		t.Errorf("SPIRE's certificate had expired %s before", now.Sub(second.NotAfter))
	}
	s.startAgent()
	if third := await("SPIRE's again", "spire", anotherThan(second)); third.RootFingerprint == given.RootFingerprint {
		t.Error("both have one root")
	}
}

// manager gets "default" from the agent and, failing that, from a CA.
func (s *spire) manager(authority *catest.CA) *secret.Manager {
	s.t.Helper()
	var log logtest.Log
	from, err := spiresecret.NewAuthority(spiresecret.Config{Socket: s.socket(), Log: log.Logger(), Secrets: []spiresecret.Spec{
		{Name: "default", Kind: secret.KeyPair, SPIFFEID: web}, {Name: "roots", Kind: secret.TrustBundle, TrustDomain: "example.org"},
	}})
	s.must(err)
	id, err := pki.NewIdentity(web, nil, nil)
	s.must(err)
	both := []string{"spire", "ca"}
	m, err := secret.New(secret.Config{
		Authorities: []secret.Authority{
			{Name: "spire", Client: from, AcceptLongerTTL: new(true), RootOverlap: new(time.Duration)}, {Name: "ca", Client: authority},
		},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Authorities: both, FallbackAfter: time.Second, Identity: id, TTL: time.Hour},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: both},
		},
		Log: log.Logger(),
	})
	s.must(err)
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Log(&log)
		}
		s.must(from.Close())
		s.must(m.Close())
	})
	from.Notify(func() { m.Kick("spire") })
	return m
}

func (s *spire) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
