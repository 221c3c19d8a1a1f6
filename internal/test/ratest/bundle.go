package ratest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Bundles are n of one root each, and their union.
func Bundles(tb testing.TB, n int) (each []*pki.Bundle, all *pki.Bundle) {
	tb.Helper()
	for range n {
		one := pki.NewBundle(certtest.Root(tb).Cert)
		each, all = append(each, one), all.Union(one)
	}
	return each, all
}

// HugeBundle is over an API server's limit for an object.
func HugeBundle(tb testing.TB) *pki.Bundle {
	tb.Helper()
	var certs []*x509.Certificate
	for range 12 {
		certs = append(certs, certtest.SelfSigned(tb, &x509.Certificate{
			Subject: pkix.Name{CommonName: "huge"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
			ExtraExtensions: []pkix.Extension{{Id: []int{1, 2, 3}, Value: slices.Repeat([]byte{1}, 70<<10)}},
		}).Cert)
	}
	return pki.NewBundle(certs...)
}
