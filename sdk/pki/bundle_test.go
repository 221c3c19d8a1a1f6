package pki_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// A subject is the authority's text: it must neither clear a terminal nor forge a line.
func TestRefusedRootSubjectIsEscaped(t *testing.T) {
	leaf := certtest.SelfSigned(t, &x509.Certificate{
		Subject:  pkix.Name{CommonName: "\x1b[2J\nlevel=INFO msg=forged \u202e" + strings.Repeat("x", 1000)},
		NotAfter: time.Now().Add(time.Hour),
	})
	_, err := pki.ParseBundle(pki.EncodeCertificates([]*x509.Certificate{leaf.Cert}))
	if err == nil || !strings.Contains(err.Error(), `CN=\x1b[2J\nlevel=INFO msg=forged \u202ex`) {
		t.Fatalf("got %q, which lacks the subject, escaped", err)
	}
	if strings.ContainsAny(err.Error(), "\x1b\n\u202e") || len(err.Error()) > 500 {
		t.Errorf("got %q", err)
	}
}
