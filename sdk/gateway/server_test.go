package gateway_test

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

const serverID = "spiffe://test/discovery"

// byID has the client verify the service by its SPIFFE ID, and the service show this.
func byID(shown *x509.Certificate) func(*world, *gateway.Config) {
	return func(w *world, c *gateway.Config) {
		w.stop()
		shown.NotAfter = time.Now().Add(time.Hour)
		w.shown = shown
		w.start()
		c.ServerSPIFFEID = serverID
	}
}

func TestServiceIsVerifiedBySPIFFEID(t *testing.T) {
	for name, shown := range map[string]*x509.Certificate{
		"alone":              {URIs: []*url.URL{spiffeID("discovery")}},
		"beside a DNS name":  {URIs: []*url.URL{spiffeID("discovery")}, DNSNames: []string{"other.test"}},
		"as Istio's have it": {URIs: []*url.URL{spiffeID("discovery")}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, byID(shown), func(w *world) {
				good := w.pair(web)
				w.put(web, good)
				w.watch(web)
				w.holds(web, good)
				if c := w.called()[0]; c.who != "first" {
					t.Errorf("called as %q", c.who)
				}
			})
		})
	}
}

func TestServiceCanBeSignedByIntermediate(t *testing.T) {
	adjust := func(w *world, c *gateway.Config) {
		w.below = w.ca.Issue(t, certtest.Root(t).Cert)
		byID(&x509.Certificate{URIs: []*url.URL{spiffeID("discovery")}})(w, c)
	}
	inWorld(t, adjust, func(w *world) {
		good := w.pair(web)
		w.put(web, good)
		w.watch(web)
		w.holds(web, good)
	})
}

func TestServiceWithOtherSPIFFEIDGetsNothing(t *testing.T) {
	mine := []*url.URL{spiffeID("discovery")}
	for name, test := range map[string]struct {
		shown *x509.Certificate
		want  string
	}{
		"another ID":           {&x509.Certificate{URIs: []*url.URL{spiffeID("other")}}, "spiffe://test/other"},
		"another domain":       {&x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "other", Path: "/discovery"}}}, "spiffe://other/discovery"},
		"two URIs":             {&x509.Certificate{URIs: []*url.URL{spiffeID("discovery"), spiffeID("other")}}, "exactly one"},
		"a DNS name alone":     {&x509.Certificate{DNSNames: []string{serverName}}, "names 0 URIs"},
		"a CA":                 {&x509.Certificate{URIs: mine, IsCA: true, BasicConstraintsValid: true}, "of a CA"},
		"for clients alone":    {&x509.Certificate{URIs: mine, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, "key usage"},
		"not by these roots":   {&x509.Certificate{URIs: mine}, "unknown authority"},
		"one that has expired": {&x509.Certificate{URIs: mine}, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			adjust := func(w *world, c *gateway.Config) {
				byID(test.shown)(w, c)
				switch test.want {
				case "unknown authority":
					w.own.put(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Roots: certtest.Root(t).PEM()})
				case "expired":
					time.Sleep(2 * time.Hour)
				}
			}
			inWorld(t, adjust, func(w *world) {
				w.put(web, w.pair(web))
				w.watch(web)
				w.pass()
				w.answers(web, xds.ErrNotReady)
				if s := w.client.Status(); len(w.called()) != 0 || s.Failure == nil || !strings.Contains(s.Failure.Text, test.want) {
					t.Errorf("called %d times, %+v", len(w.called()), s.Failure)
				}
			})
		})
	}
}

func TestInvalidServerIdentityIsRefused(t *testing.T) {
	for want, spoil := range map[string]func(*gateway.Config){
		"are both set": func(c *gateway.Config) { c.ServerName, c.ServerSPIFFEID = serverName, serverID },
		"is not valid": func(c *gateway.Config) { c.ServerSPIFFEID = "spiffe://test" },
	} {
		cfg := gateway.Config{Address: "a:1", NodeID: "n", Secrets: &own{}}
		spoil(&cfg)
		if _, err := gateway.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
