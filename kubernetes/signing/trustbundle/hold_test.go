package trustbundle_test

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/ratest"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// engine is an engine that learns its root with the first certificate.
type engine struct {
	ra.Issuer
	d         *desk
	root      *certtest.Pair
	authority string
	asked     int
}

func (o *engine) Issue(context.Context, *ra.Order) (ra.Certificate, error) {
	o.asked++
	leaf := o.root.Leaf(o.d.t, time.Hour)
	o.d.has(o.authority, pki.NewBundle(o.root.Cert))
	return ra.Certificate{Authority: o.authority, Chain: pki.NewBundle(leaf.Cert).PEM()}, nil
}

// asks returns what became of a request after a while; "waits" if nothing did.
func asks(ctx context.Context, t *testing.T, issuer ra.Issuer, door string) func() string {
	t.Helper()
	return awaits(ctx, t, issuer, &ra.Order{Request: ra.Request{Door: door}})
}

func awaits(ctx context.Context, t *testing.T, issuer ra.Issuer, order *ra.Order) func() string {
	t.Helper()
	got := "waits"
	go func() {
		cert, err := issuer.Issue(ctx, order)
		switch {
		case err != nil && (!errors.Is(err, ca.ErrUnavailable) || ra.Refused(err) || cert.Chain != nil):
			t.Errorf("%v, and a certificate of %d bytes", err, len(cert.Chain))
		case err != nil:
			got = err.Error()
		default:
			got = "issued"
		}
	}()
	return func() string { synctest.Wait(); return got }
}

// prepared is an order of an engine with that audit log.
func prepared(t *testing.T, door ra.Door, audit *ratest.Audit) *ra.Order {
	t.Helper()
	rule := ra.Rule{Name: "all", Authority: "ca", Names: ra.Names{SPIFFEID: "spiffe://example.org/{user}"}}
	e := ratest.Engine(t, ra.Config{
		Policy: ratest.Policy(t, rule), Audit: audit, Doors: []ra.Door{door}, Authorities: []ra.Authority{{Name: "ca", Client: ratest.NewCA(t)}},
	})
	t.Cleanup(e.Close)
	o, err := e.Prepare(t.Context(), ra.Request{
		Subject: ra.Subject{Kind: ra.User, Cluster: "home", User: "jane"}, Door: door.Name, CSR: ratest.CSR(pki.ECDSAP256, &x509.CertificateRequest{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestCertificateWaitsForItsRoot(t *testing.T) {
	for _, door := range []ra.Door{signing.PodDoor(signer), signing.CSRDoor(signer)} {
		inBubble(t, nil, func(d *desk) {
			o := &engine{d: d, root: certtest.Root(t), authority: "ca"}
			issuer := d.Hold(o)
			d.server.Set(func() { d.server.err = errAway })
			d.start()
			first := asks(d.t.Context(), d.t, issuer, door.Name)
			d.pass(time.Minute)
			if got := first(); got != "waits" {
				t.Errorf("the first %s", got)
			}
			second := asks(d.t.Context(), d.t, issuer, door.Name)
			if got := second(); !strings.Contains(got, errAway.Error()) || o.asked != 1 {
				t.Errorf("the second: %s; asked %d times", got, o.asked)
			}
			d.server.Set(func() { d.server.err = nil })
			d.pass(2 * time.Minute)
			if got := first(); got != "issued" {
				t.Errorf("the first %s", got)
			}
			third := asks(d.t.Context(), d.t, issuer, door.Name)
			if got := third(); got != "issued" {
				t.Errorf("the third %s", got)
			}
		})
	}
}

func TestCallerThatGoesAwayIsNotHeld(t *testing.T) {
	inBubble(t, nil, func(d *desk) {
		d.server.Set(func() { d.server.err = errAway })
		d.start()
		ctx, cancel := context.WithCancel(d.t.Context())
		var audit ratest.Audit
		got := awaits(ctx, d.t, d.Hold(&engine{d: d, root: certtest.Root(t), authority: "ca"}), prepared(d.t, signing.CSRDoor(signer), &audit))
		d.pass(time.Minute)
		cancel()
		if got := got(); !strings.Contains(got, "canceled") {
			t.Error(got)
		}
		if lines := audit.Lines(d.t, "withheld"); len(lines) != 1 {
			t.Errorf("%v", lines)
		}
	})
}

func TestCertificateOfAnotherAuthorityIsNotHeld(t *testing.T) {
	inBubble(t, nil, func(d *desk) {
		d.server.Set(func() { d.server.err = errAway })
		d.start()
		issuer := d.Hold(&engine{d: d, root: certtest.Root(t), authority: "other"})
		for _, door := range []string{signing.PodDoor(signer).Name, "another"} {
			if got := asks(d.t.Context(), d.t, issuer, door)(); got != "issued" {
				t.Errorf("at door %s: %s", door, got)
			}
		}
	})
}
