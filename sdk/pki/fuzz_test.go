package pki

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"
)

// FuzzChain has a CA reply with anything to a request for just the leaf that it
// replies with, and publish anything as its roots.
func FuzzChain(f *testing.F) {
	root := (*issuer)(nil).issue(f, caTemplate("root"), mustKey(f, ""))
	middle := root.issue(f, caTemplate("middle"), mustKey(f, ""))
	leaf := middle.issue(f, leafTemplate(), mustKey(f, ""))
	good, roots := EncodeCertificates([]*x509.Certificate{leaf.cert, middle.cert}), NewBundle(root.cert).PEM()
	f.Add(good, roots, byte(ExactNames))
	f.Add(good[:len(good)/2], roots, byte(AnyName))
	f.Add(append(good, roots...), good, byte(TrustDomainName))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), roots, byte(0))
	f.Fuzz(func(t *testing.T, reply, rootsPEM []byte, names byte) {
		check := Check{Names: NameCheck(names % 3), Now: now, AskedUntil: now.Add(time.Hour)}
		if certs, err := ParseCertificates(reply); err == nil {
			check.Key = certs[0].PublicKey
			check.Identity, _ = IdentityOf(certs[0])
		}
		check.Roots, _ = ParseBundle(rootsPEM)
		chain, err := check.Chain(reply)
		if err != nil {
			mustBeCheckError(t, err)
			return
		}
		if chain.Leaf.IsCA || !check.Roots.Contains(chain.Root) || len(chain.Certificates) > maxChain {
			t.Errorf("taken: a chain of %d, CA %v, to %v", len(chain.Certificates), chain.Leaf.IsCA, chain.Root.Subject)
		}
		if _, err := check.Chain(chain.PEM); err != nil {
			t.Errorf("encoded anew it is refused: %v", err)
		}
	})
}

// mustBeCheckError holds an error to what a log and a metric can take.
func mustBeCheckError(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*CheckError](err); !ok {
		t.Fatalf("%v is not a CheckError", err)
	}
	if len(err.Error()) > 2000 || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
		t.Errorf("the error has %d bytes: %.2000q", len(err.Error()), err)
	}
}
