package gateway_test

import (
	"crypto/x509"
	"net/url"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// leafOf returns a chain and key for the name.
func leafOf(t *testing.T, ca *certtest.Pair, name string, life time.Duration) (chain, keyPEM []byte) {
	t.Helper()
	leaf := ca.Issue(t, &x509.Certificate{
		DNSNames: []string{name}, URIs: []*url.URL{spiffeID(name)}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(life),
	})
	return leaf.PEM(), leaf.KeyPEM(t)
}

func spiffeID(name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "test", Path: "/" + name}
}
