package ra_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// guard returns what it is set to, and counts.
type guard struct {
	before, after error
	asked, seen   int
}

func (g *guard) Before(authority, cluster string, _ *pki.Bundle) error {
	if g.asked++; authority != "ca" || cluster != "home" {
		return errors.New("asked about " + authority + " for " + cluster)
	}
	return g.before
}

func (g *guard) After(cert ra.Certificate, _ string) error {
	if g.seen++; len(cert.Chain) == 0 || cert.Roots.Len() == 0 || cert.Authority != "ca" {
		return errors.New("there is no certificate to look at")
	}
	return g.after
}

func TestGuardIsAskedBeforeAndAfterTheAuthority(t *testing.T) {
	g := &guard{}
	inBubble(t, func(c *ra.Config) { c.Guard = g }, func(h *house) {
		g.before = ca.Errorf(ca.NotConfigured, "harmful")
		h.refused(request(), ca.ErrNotConfigured)
		if h.ca.Issued() > 0 || g.seen > 0 {
			t.Error("the authority was asked")
		}
		g.before = nil
		h.must(request())
		if lines := h.paper.Lines(t, "issued"); len(lines) != 1 || g.seen != 1 {
			t.Errorf("%v, looked at %d", lines, g.seen)
		}
	})
}

// What the guard rejects was never issued: the audit log has it as discarded.
func TestGuardKeepsACertificateBack(t *testing.T) {
	g := &guard{after: ca.Errorf(ca.NotConfigured, "signed by a client CA")}
	inBubble(t, func(c *ra.Config) { c.Guard = g }, func(h *house) {
		err := h.refused(request(), ca.ErrNotConfigured)
		if ra.Refused(err) || !strings.Contains(err.Error(), "client CA") {
			t.Error(err)
		}
		if issued, discarded := h.paper.Lines(t, "issued"), h.paper.Lines(t, "discarded"); len(issued) != 0 || len(discarded) != 1 || discarded[0]["serial"] == nil {
			t.Errorf("issued %v, discarded %v", issued, discarded)
		}
		if got := h.results(); len(got) != 1 || got[0] != "not configured" {
			t.Errorf("outcomes %v", got)
		}
		g.after = nil
		time.Sleep(10 * time.Minute)
		h.must(request())
	})
}

func TestGuardIsNotAskedAtTheProgramsOwnDoor(t *testing.T) {
	g := &guard{before: ca.Errorf(ca.NotConfigured, "harmful")}
	inBubble(t, func(c *ra.Config) { c.Guard, c.Doors[1].Own = g, true }, func(h *house) {
		req := request()
		req.Door = istio
		h.must(req)
		h.refused(request(), ca.ErrNotConfigured)
	})
}

func TestGuardIsNotAskedAboutWhatIsDenied(t *testing.T) {
	g := &guard{}
	inBubble(t, func(c *ra.Config) { c.Guard = g }, func(h *house) {
		stranger := request()
		stranger.Subject.Cluster = "elsewhere"
		h.refused(stranger, ca.ErrDenied)
		if g.asked > 0 {
			t.Error("it was asked")
		}
	})
}
