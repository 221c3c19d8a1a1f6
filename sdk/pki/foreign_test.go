package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"strings"
	"testing"
)

// What Go cannot read or a peer does not need is left out of a reply, and described.
func TestUselessCertificatesOfReplyAreLeftOut(t *testing.T) {
	root := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, ""))
	stranger := (*issuer)(nil).issue(t, caTemplate("stranger"), mustKey(t, ""))
	key := mustKey(t, "")
	leaf := root.issue(t, leafTemplate(), key)
	text := slices.Concat(read(t, "negative-serial.pem"), EncodeCertificates([]*x509.Certificate{leaf.cert, root.cert, stranger.cert}), read(t, "brainpool.pem"))
	chain, err := Check{Key: key.Public(), Identity: mustIdentity(t, "spiffe://example.org/web", nil, nil), Roots: NewBundle(root.cert), Now: now}.Chain(text)
	if err != nil || string(chain.PEM) != string(EncodeCertificates([]*x509.Certificate{leaf.cert})) {
		t.Fatalf("got %v", err)
	}
	for i, want := range []string{`"CN=stranger" (`, "PEM block 1 is not accepted by Go's crypto/x509: negative serial number", "PEM block 5 has a key on the curve brainpoolP256r1"} {
		if len(chain.LeftOut) != 3 || !strings.HasPrefix(chain.LeftOut[i], want) {
			t.Fatalf("left out: %q", chain.LeftOut)
		}
	}
	_, err = Check{Key: key.Public(), Names: AnyName, Roots: NewBundle(stranger.cert), Now: now}.Chain(text)
	if err == nil || !strings.Contains(err.Error(), "left out: PEM block 1 is not accepted") {
		t.Errorf("got %v, which does not say what was left out", err)
	}
}

// OpenSSL processes constraints of directory names, crypto/x509 does not.
func TestUnsupportedExtensionIsNamedWithItsCertificate(t *testing.T) {
	constraints, err := asn1.Marshal(struct {
		Permitted []struct{ Base asn1.RawValue } `asn1:"optional,tag:0"`
	}{[]struct{ Base asn1.RawValue }{{asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 4, IsCompound: true, Bytes: []byte{0x30, 0}}}}})
	if err != nil {
		t.Fatal(err)
	}
	root := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, ""))
	template := caTemplate("constrained")
	template.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 30}, Critical: true, Value: constraints}}
	middle, key := root.issue(t, template, mustKey(t, "")), mustKey(t, "")
	leaf := middle.issue(t, leafTemplate(), key)
	_, err = Check{Key: key.Public(), Names: AnyName, Roots: NewBundle(root.cert), Now: now}.Chain(EncodeCertificates([]*x509.Certificate{leaf.cert, middle.cert}))
	if want := `"CN=constrained" has the critical extension 2.5.29.30 (name constraints, such as dirName), which Go's crypto/x509 does not support`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestRootsOwnSignatureIsNotChecked(t *testing.T) {
	if bundle, err := ParseBundle(read(t, "sha1-root.pem")); err != nil || bundle.Len() != 1 {
		t.Errorf("self-signed with SHA-1: %v", err)
	}
	root := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, ""))
	next := root.issue(t, caTemplate("root"), mustKey(t, ""))
	for _, strip := range []bool{false, true} {
		one, other := *root.cert, *next.cert
		if strip { // key identifiers are optional
			one.AuthorityKeyId, other.AuthorityKeyId = nil, nil
		}
		if !SelfSigned(&one) || SelfSigned(&other) {
			t.Errorf("identifiers left out: %t: a root is %t, one below it of the same name is %t", strip, SelfSigned(&one), SelfSigned(&other))
		}
	}
}

func TestUselessRootIsLeftOutAndNamed(t *testing.T) {
	root := (*issuer)(nil).issue(t, caTemplate("root"), mustKey(t, ""))
	middle := root.issue(t, caTemplate("middle"), mustKey(t, ""))
	good := EncodeCertificates([]*x509.Certificate{middle.cert, root.cert})
	bundle, unusable, err := UsableBundle(slices.Concat(read(t, "explicit-curve.pem"), good))
	if err != nil || !bundle.Equal(NewBundle(root.cert)) || len(unusable) != 2 {
		t.Fatalf("%d roots, left out %v, %v", bundle.Len(), unusable, err)
	}
	for i, want := range []string{"explicit curve parameters", "(CN=middle) is refused: it is not self-signed"} {
		if !strings.Contains(unusable[i].Error(), want) {
			t.Errorf("got %v, want %q", unusable[i], want)
		}
	}
	if _, _, err := UsableBundle(read(t, "brainpool.pem")); err == nil || !strings.Contains(err.Error(), "brainpoolP256r1") {
		t.Errorf("none that can be used: %v", err)
	}
}
