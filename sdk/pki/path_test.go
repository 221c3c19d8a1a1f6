package pki

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"
)

// A CA may send a chain in which each certificate is signed by the next and which still
// leads in a circle, or is longer than the way to its root.
func TestVerifiedPathIsServed(t *testing.T) {
	root := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, ""))
	old := (*issuer)(nil).issue(t, caTemplate("old root"), mustKey(t, ""))
	one, two := mustKey(t, ""), mustKey(t, "")
	a := root.issue(t, caTemplate("a"), one)
	b := a.issue(t, caTemplate("b"), two)
	round := b.issue(t, caTemplate("a"), one) // a, signed by b: a circle
	twice := old.issue(t, caTemplate("a"), one)
	crossed := func(ends time.Time) *issuer {
		template := caTemplate("root")
		template.NotAfter = ends
		return old.issue(t, template, root.key)
	}
	cross, short := crossed(now.Add(240*time.Hour)), crossed(now.Add(time.Minute))
	key := mustKey(t, "")
	leaf := a.issue(t, leafTemplate(), key).cert
	for name, c := range map[string]struct {
		sent, served []*x509.Certificate
		roots        *Bundle
		ends         time.Time
	}{
		"straight": {[]*x509.Certificate{leaf, a.cert}, []*x509.Certificate{leaf, a.cert}, NewBundle(root.cert), leaf.NotAfter},
		"the issuing CA twice, under two roots, as Vault sends it": {
			[]*x509.Certificate{leaf, a.cert, twice.cert, root.cert, old.cert}, []*x509.Certificate{leaf, a.cert}, NewBundle(root.cert), leaf.NotAfter,
		},
		"the same, with the other root": {
			[]*x509.Certificate{leaf, a.cert, twice.cert, root.cert, old.cert}, []*x509.Certificate{leaf, twice.cert}, NewBundle(old.cert), leaf.NotAfter,
		},
		"a circle":   {[]*x509.Certificate{leaf, round.cert, b.cert, a.cert}, []*x509.Certificate{leaf, a.cert}, NewBundle(root.cert), leaf.NotAfter},
		"two rounds": {[]*x509.Certificate{leaf, round.cert, b.cert, round.cert, b.cert, a.cert}, []*x509.Certificate{leaf, a.cert}, NewBundle(root.cert), leaf.NotAfter},
		"cross-signed, for peers with the old root": {
			[]*x509.Certificate{leaf, a.cert, cross.cert}, []*x509.Certificate{leaf, a.cert, cross.cert}, NewBundle(root.cert, old.cert), leaf.NotAfter,
		},
		"cross-signed, but that ends before the leaf": {
			[]*x509.Certificate{leaf, a.cert, short.cert}, []*x509.Certificate{leaf, a.cert}, NewBundle(root.cert, old.cert), leaf.NotAfter,
		},
		"an end before the leaf's": {
			[]*x509.Certificate{leaf, a.cert, short.cert}, []*x509.Certificate{leaf, a.cert, short.cert}, NewBundle(old.cert), short.cert.NotAfter,
		},
	} {
		check := Check{Key: key.Public(), Names: AnyName, Roots: c.roots, Now: now}
		got, err := check.Chain(EncodeCertificates(c.sent))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.EqualFunc(got.Certificates, c.served, (*x509.Certificate).Equal) || string(got.PEM) != string(EncodeCertificates(c.served)) {
			t.Errorf("%s: %d certificates are served, want %d", name, len(got.Certificates), len(c.served))
		}
		if !got.Ends.Equal(c.ends) {
			t.Errorf("%s: ends %s, want %s", name, got.Ends, c.ends)
		}
	}
}
