package e2e

import (
	"crypto/x509"
	"testing"
	"time"
)

func TestAbsentCAThroughRotationCostsNoHandshake(t *testing.T) {
	t.Parallel()
	a, _, p := setup(t, incremental)
	p.awaitRotation(t)
	old := p.server()
	a.setOutage(t, true)
	// Both certificates were due once, and one of them twice.
	a.log.await(t, "cannot renew certificate", "unavailable", "default")
	a.log.await(t, "cannot renew certificate", "unavailable", "client")
	if !p.server().Equal(old) {
		t.Error("there is a new certificate, though the CA is away")
	}
	a.setOutage(t, false)
	p.awaitRotation(t)
	p.awaitHandshakes(t, 20)
	p.noFailures(t)
	if a.metric(t, "countersign_failures_total", `secret="default"`, `reason="unavailable"`) == 0 {
		t.Error("no failure is counted in /metrics")
	}
}

func TestCertificateIsServedToItsLastSecondWithoutCA(t *testing.T) {
	t.Parallel()
	a, _, p := setupWith(t, incremental, agentConfig{ttl: 30 * time.Second, ratio: 0.9}) // renewed after 3 s
	a.setOutage(t, true)
	a.log.await(t, "cannot renew certificate", "unavailable", "default")
	// Whoever comes now gets the old one, too.
	late := startEnvoy(t, a.socket, incremental, "default")
	q := startProber(t, startWorkload(t, a.socket, "client"), late.address(t), envoyID)
	p.mustLastUntilExpiry(t)
	q.mustLastUntilExpiry(t)
	a.log.await(t, "certificate expired before it could be renewed")
}

// mustLastUntilExpiry waits for the first handshake that fails, which must be
// when one of the certificates has ended.
func (p *prober) mustLastUntilExpiry(t *testing.T) {
	t.Helper()
	p.await(t, "a handshake to fail", func() bool { return len(p.failures) > 0 })
	p.mu.Lock()
	failed, server := p.failures[0], p.last()
	p.mu.Unlock()
	if until := validUntil(failed.client, server); failed.at.Before(until) {
		t.Errorf("a handshake failed at %s, while both certificates were valid until %s: %v", failed.at, until, failed.err)
	}
}

// validUntil returns when the first of the certificates ends.
func validUntil(certs ...*x509.Certificate) time.Time {
	end := certs[0].NotAfter
	for _, cert := range certs {
		if cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	return end
}
