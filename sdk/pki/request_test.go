package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"
)

func TestARequestIsThatOfTheStandardLibrary(t *testing.T) {
	names := pkix.Extension{Id: oidSubjectAltName, Critical: true, Value: []byte{0x30, 0}}
	for _, kind := range KeyTypes {
		key := mustKey(t, kind)
		ours, err := createRequest(key, names)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		theirs, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{names}}, key)
		if err != nil {
			t.Fatal(err)
		}
		a, err := x509.ParseCertificateRequest(ours)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		b, err := x509.ParseCertificateRequest(theirs)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.RawTBSCertificateRequest, b.RawTBSCertificateRequest) || a.SignatureAlgorithm != b.SignatureAlgorithm {
			t.Errorf("%s: another request, or another algorithm (%s, %s)", kind, a.SignatureAlgorithm, b.SignatureAlgorithm)
		}
		if err := a.CheckSignature(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestAKeyOfAnotherKindSignsNoRequest(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := createRequest(key, pkix.Extension{Id: oidSubjectAltName}); err == nil {
		t.Error("a key of P-521 signed a request")
	}
}
