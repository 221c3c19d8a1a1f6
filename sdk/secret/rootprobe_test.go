package secret_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// rootsOnly leaves "ROOTCA" alone, of an authority that tells its roots only with
// certificates. With an identity it may order some.
func rootsOnly(t *testing.T, spiffeID string) func(*secret.Config) {
	return func(c *secret.Config) {
		c.Authorities[0].Client = signOnly{c.Authorities[0].Client}
		bundle := c.Secrets[1]
		if spiffeID != "" {
			bundle.Identity, bundle.TTL, bundle.RenewJitter = identity(t, spiffeID), ttl, 0.01
		}
		c.Secrets = []secret.Spec{bundle}
	}
}

func TestReplyOnlyRootsAreOrderedWithoutSignedSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, rootsOnly(t, "spiffe://example.org/web"))
		old := e.root()
		e.serves(old)
		first := e.requests(1)[0]
		if first.SubjectID != "spiffe://example.org/web" || first.TTL != ttl {
			t.Errorf("ordered was %q for %s", first.SubjectID, first.TTL)
		}
		if m := e.status("ROOTCA").Missing; m != "" {
			t.Errorf("missing is %q", m)
		}
		e.ca.Rotate()
		after(31 * time.Minute) // half the certificate's life
		e.requests(2)
		e.serves(old, e.root())
		after(ttl) // the first certificate has ended
		e.serves(e.root())
	})
}

func TestRootsFromOtherSourcesNeedNoCertificate(t *testing.T) {
	for name, change := range map[string]func(*secret.Config){
		"they are told": func(c *secret.Config) { c.Authorities[0].Client = c.Authorities[0].Client.(signOnly).Client },
		"they are pinned": func(c *secret.Config) {
			c.Authorities[0].PinnedRoots = c.Authorities[0].Client.(signOnly).Client.(*catest.CA).Bundle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, func(c *secret.Config) {
					rootsOnly(t, "spiffe://example.org/web")(c)
					change(c)
				})
				after(2 * time.Hour)
				e.serves(e.root())
				e.requests(0)
			})
		})
	}
}

func TestSignedSecretBringsRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			pair := c.Secrets[0]
			rootsOnly(t, "spiffe://example.org/other")(c)
			c.Secrets = append(c.Secrets, pair)
		})
		after(10 * time.Minute)
		e.serves(e.root())
		e.requests(1)
	})
}

func TestFailedRootOrderIsShownAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Always(catest.Fault{Err: ca.ErrUnavailable})
			rootsOnly(t, "spiffe://example.org/web")(c)
		})
		e.notReady("ROOTCA")
		if f := e.status("ROOTCA").Failure; f == nil || f.Reason != "unavailable" {
			t.Errorf("the failure is %+v", f)
		}
		e.ca.Always(catest.Fault{})
		after(time.Minute)
		e.serves(e.root())
		if f := e.status("ROOTCA").Failure; f != nil {
			t.Errorf("the failure is %+v", f)
		}
		if asked := e.ca.Requests(); asked[0].ID != asked[len(asked)-1].ID {
			t.Error("the retry was a new order")
		}
	})
}

func TestReloadOrdersNoSecondCertificateForRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var config secret.Config
		e := newEngine(t, func(c *secret.Config) {
			rootsOnly(t, "spiffe://example.org/web")(c)
			config = *c
		})
		e.requests(1)
		if err := e.Reload(config.Secrets, config.Authorities); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		e.requests(1)
	})
}

func TestReloadDuringRootOrderLosesNoRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var config secret.Config
		e := newEngine(t, func(c *secret.Config) {
			c.Authorities[0].Client.(*catest.CA).Next(1, catest.Fault{Delay: 10 * time.Second})
			rootsOnly(t, "spiffe://example.org/web")(c)
			config = *c
		})
		after(5 * time.Second)
		e.notReady("ROOTCA")
		if err := e.Reload(config.Secrets, config.Authorities); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		e.serves(e.root())
	})
}

func TestStatusShowsThatRootsComeOnlyWithCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, rootsOnly(t, ""))
		after(time.Hour)
		e.notReady("ROOTCA")
		if m := e.status("ROOTCA").Missing; !strings.Contains(m, "only with issued certificates") {
			t.Errorf("missing is %q", m)
		}
	})
}
