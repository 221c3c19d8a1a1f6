package secret_test

import (
	"crypto/x509"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// shortLived is a CA whose own certificates end in ten minutes.
func shortLived(e *engine, intermediates int) *catest.CA {
	return catest.NewCA(catest.Options{Now: e.now, Intermediates: intermediates, CALifetime: time.Hour + 10*time.Minute})
}

func TestCertificateEndsWithFirstOnItsPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client = shortLived(&engine{}, 1)
			c.Secrets[0].TTL = 24 * time.Hour
		})
		leaf := e.held("default")
		if left := leaf.NotAfter.Sub(e.now()); left != 10*time.Minute {
			t.Errorf("it is held for %s, its issuer for 10 minutes", left)
		}
		if wait := leaf.RenewAt.Sub(e.now()); wait < 4*time.Minute || wait > 6*time.Minute {
			t.Errorf("it is renewed after %s", wait)
		}
		if e.count(secret.CutShort, "") != 1 {
			t.Errorf("nobody is told: %v", e.events)
		}
	})
}

func TestSufficientLifetimeIsNotCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, nil)
		e.held("default")
		if e.count(secret.CutShort, "") != 0 {
			t.Errorf("events %v", e.events)
		}
	})
}

func TestSeveralURIsAreRefusedWhateverAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Names = new(pki.AnyName)
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Break: func(d *catest.Draft) {
				d.Leaf.URIs = append(d.Leaf.URIs, &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/other"})
			}})
		})
		e.notReady("default")
		if e.count(secret.Failed, "names") != 1 {
			t.Errorf("events %v", e.events)
		}
	})
}

func TestLeafCannotNameAnotherSecret(t *testing.T) {
	for name, give := range map[string]func(*x509.Certificate){
		"DNS name": func(c *x509.Certificate) { c.DNSNames = []string{"OTHER.example.org"} },
		"DNS name beside an e-mail": func(c *x509.Certificate) {
			c.DNSNames, c.EmailAddresses = []string{"other.example.org"}, []string{"a@b.example"}
		},
		"common name": func(c *x509.Certificate) { c.Subject.CommonName = "Other.example.org" },
		"DNS name beside another URI": func(c *x509.Certificate) {
			c.DNSNames, c.URIs = []string{"other.example.org"}, []*url.URL{{Scheme: "urn", Opaque: "x"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, func(c *secret.Config) {
					c.Authorities[0].Names = new(pki.AnyName)
					other, err := pki.NewIdentity("", []string{"other.example.org"}, nil)
					if err != nil {
						t.Fatal(err)
					}
					away := catest.NewCA(catest.Options{})
					away.Always(catest.Fault{Err: ca.ErrUnavailable})
					c.Authorities = append(c.Authorities, secret.Authority{Name: "away", Client: away})
					c.Secrets = append(c.Secrets, secret.Spec{Name: "other", Kind: secret.KeyPair, Authorities: []string{"away"}, Identity: other})
					c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Break: func(d *catest.Draft) { give(d.Leaf) }})
				})
				e.notReady("default")
				if e.count(secret.Failed, "names") != 1 {
					t.Errorf("events %v", e.events)
				}
			})
		})
	}
}

func TestWrongRepliesCostFewCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Break: catest.WrongName})
		})
		after(time.Hour)
		if n := len(e.ca.Requests()); n < 8 || n > 14 {
			t.Errorf("%d requests in the first hour", n)
		}
	})
}

// The lifetime and the outage of a run in which the agent stood 17.6 s without a
// certificate, although the CA was well 29 s before the end.
func TestShortRefusalCostsNoCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Secrets[0].TTL = 80 * time.Second
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: ca.ErrUnauthenticated})
		})
		after(3 * time.Second)
		e.ca.Always(catest.Fault{})
		after(5 * time.Second)
		first := e.held("default")
		e.untilRenewal(-time.Second)
		e.ca.Always(catest.Fault{Err: ca.ErrDenied})
		after(first.NotAfter.Sub(e.now()) - 15*time.Second)
		e.ca.Always(catest.Fault{})
		after(14 * time.Second)
		if e.held("default").Version == first.Version {
			t.Error("it was not renewed in time")
		}
	})
}

func TestJustRefusedTokenIsNotResent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Token = tokens("same")
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Delay: 3 * time.Millisecond, Err: ca.ErrUnauthenticated})
		})
		for range 10 {
			e.Kick("test")
			after(10 * time.Millisecond)
		}
		e.requests(1)
		after(2 * time.Second)
		if n := len(e.ca.Requests()); n < 2 || n > 3 {
			t.Errorf("%d requests in two seconds", n)
		}
	})
}

func TestFailedRecordRemovalIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, nil)
		k.held("default")
		synctest.Wait()
		k.store.setFault(errAway)
		if err := k.Release(agent, "default"); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		k.store.setFault(nil)
		after(time.Minute + 30*time.Second)
		for _, name := range k.store.names() {
			if name == "secret default" {
				t.Error("the key that was released is stored still")
			}
		}
		if n := k.count(secret.StateFailed, "store"); n > 12 {
			t.Errorf("%d tries in a minute", n)
		}
		if n := k.count(secret.StateKept, ""); n != 1 {
			t.Errorf("it was notified %d times that the state is kept again", n)
		}
	})
}
