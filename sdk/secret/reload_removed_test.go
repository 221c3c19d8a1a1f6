package secret_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// withSecond adds a trust bundle of a second authority, beside the first one's, and watches it.
func withSecond(r *reloading, name string) (second *catest.CA) {
	second = catest.NewCA(catest.Options{Now: r.now})
	r.change(func(c *secret.Config) {
		overlap := 20 * time.Minute
		c.Authorities = append(c.Authorities, secret.Authority{Name: "second", Client: second, RootOverlap: &overlap})
		more := extra(r.t, "more", "spiffe://example.org/more")
		more.Authorities = []string{"second"}
		c.Secrets = append(c.Secrets, more, secret.Spec{Name: name, Kind: secret.TrustBundle, Authorities: []string{"second"}})
	})
	r.held("more")
	r.told(name)
	return second
}

func TestRemovedTrustBundleLeavesItsNameToAnotherAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		second := withSecond(r, "x")
		r.change(func(c *secret.Config) { c.Authorities, c.Secrets = c.Authorities[:1], c.Secrets[:2] })
		r.change(func(c *secret.Config) {
			c.Secrets = append(c.Secrets, secret.Spec{Name: "x", Kind: secret.TrustBundle, Authorities: []string{"test"}})
		})
		told := r.told("x")
		for range 120 {
			after(10 * time.Second)
			if got := r.held("x").RootFingerprints; len(got) != 1 || got[0] != rootPrint(r.ca) {
				t.Fatalf("x has the roots %v; the removed authority's is %s", got, rootPrint(second))
			}
		}
		if n := told(); n != 0 {
			t.Errorf("%d pushes of what did not change", n)
		}
	})
}

func TestRemovedTrustBundleLeavesItsNameToKeyPair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		withSecond(r, "x")
		r.change(func(c *secret.Config) {
			c.Authorities, c.Secrets = c.Authorities[:1], append(c.Secrets[:2:2], extra(t, "x", "spiffe://example.org/x"))
		})
		for range 120 {
			if got := r.held("x"); got.Kind != secret.KeyPair {
				t.Fatalf("x is a %s", got.Kind)
			}
			after(10 * time.Second)
		}
	})
}

// TestBundleRemovedWhileItsAuthorityPublishes removes a trust bundle whose authority stays and has new
// roots at that moment.
func TestBundleRemovedWhileItsAuthorityPublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t)
		withSecond(r, "x")
		r.change(func(c *secret.Config) {
			r.ca.Rotate()
			c.Secrets = append(c.Secrets[:1:1], extra(t, "ROOTCA", "spiffe://example.org/x"))
		})
		for range 120 {
			if got := r.held("ROOTCA"); got.Kind != secret.KeyPair {
				t.Fatalf("ROOTCA is a %s", got.Kind)
			}
			after(10 * time.Second)
		}
	})
}
