package revocation_test

import (
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/revocation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// pair puts a key pair of the CA into the source, and returns its serial number.
func (b *bundle) pair(name string, ca *catest.CA) *big.Int {
	b.t.Helper()
	chain, _ := ca.Pair(time.Hour, "spiffe://example.org/web")
	b.shelf.Put(&secret.Item{Name: name, Kind: secret.KeyPair, Chain: chain})
	certs, err := pki.ParseCertificates(chain)
	must(b.t, err)
	passes(0)
	return certs[0].SerialNumber
}

func TestRevokedPairIsRenewedOnceForEachCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewed []string
		ca, other := catest.NewCA(catest.Options{Intermediates: 1}), catest.NewCA(catest.Options{})
		b := serveWith(t, ca, func(c *revocation.Config) {
			c.Bundles[0].Chains = []string{"default", "web", "late"}
			c.Renew = func(name string) error { renewed = append(renewed, name); return nil }
		}, ca.CRLs(catest.CRL{Number: 1})...)
		first, _, strangers := b.pair("default", ca), b.pair("web", ca), b.pair("late", other)
		wants := func(what string, names ...string) {
			t.Helper()
			if passes(10 * time.Minute); !slices.Equal(renewed, names) {
				t.Errorf("%s: renewed are %v, want %v\n%s", what, renewed, names, &b.log)
			}
		}
		wants("nothing is revoked")
		b.write(ca.CRLs(catest.CRL{Number: 2, Revoked: []*big.Int{first, strangers}})...)
		wants("the first is revoked, and a serial number of another CA", "default")
		b.says("a held certificate is revoked")
		if len(b.events) == 0 {
			t.Fatal("there is no event")
		}
		if e := b.events[len(b.events)-1]; e.Secret != "default" || e.Reason != "revoked" || e.Failure == nil {
			t.Errorf("the event is %+v", e)
		}
		b.reload(revocation.Bundle{Name: "ROOTCA", Files: []string{b.file}, Chains: []string{"default"}})
		wants("the same after a reload", "default")
		second := b.pair("default", ca)
		wants("its successor is not revoked", "default")
		b.write(ca.CRLs(catest.CRL{Number: 3, Revoked: []*big.Int{first, second}})...)
		wants("its successor is", "default", "default")
	})
}

// The owner may be waiting after a failure that has nothing to do with the revocation.
func TestRefusedRenewalOfRevokedPairIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		ca := catest.NewCA(catest.Options{})
		b := serveWith(t, ca, func(c *revocation.Config) {
			c.Bundles[0].Chains = []string{"default"}
			c.Renew = func(string) error {
				if calls++; calls < 4 {
					return errors.New("it waits")
				}
				return nil
			}
		}, ca.CRLs(catest.CRL{Number: 1})...)
		serial := b.pair("default", ca)
		b.write(ca.CRLs(catest.CRL{Number: 2, Revoked: []*big.Int{serial}})...)
		if passes(10 * time.Minute); calls != 4 {
			t.Errorf("it is called %d times, want 4", calls)
		}
		for _, line := range []string{"is revoked, and is renewed", "is not renewed now"} {
			if n := strings.Count(b.log.String(), line); n != 1 {
				t.Errorf("%q is logged %d times\n%s", line, n, &b.log)
			}
		}
	})
}

// A CA that gives all certificates one serial number, or revokes each, gets no flood of requests.
func TestRevokedSuccessorsAreRenewedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := catest.NewCA(catest.Options{})
		var b *bundle
		var pairs []*secret.Item
		var serials []*big.Int
		for range 30 {
			chain, _ := ca.Pair(time.Hour, "spiffe://example.org/web")
			certs, err := pki.ParseCertificates(chain)
			must(t, err)
			pairs, serials = append(pairs, &secret.Item{Name: "default", Kind: secret.KeyPair, Chain: chain}), append(serials, certs[0].SerialNumber)
		}
		renewed := 0
		b = serveWith(t, ca, func(c *revocation.Config) {
			c.Bundles[0].Chains = []string{"default"}
			c.Renew = func(string) error { renewed++; b.shelf.Put(pairs[min(renewed, len(pairs)-1)]); return nil }
		}, ca.CRLs(catest.CRL{Number: 1})...)
		b.shelf.Put(pairs[0])
		b.write(ca.CRLs(catest.CRL{Number: 2, Revoked: serials})...)
		if passes(5 * time.Minute); renewed < 4 || renewed > 6 {
			t.Errorf("%d renewals in 5 minutes", renewed)
		}
	})
}
