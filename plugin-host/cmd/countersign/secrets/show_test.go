package secrets

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/plugin-host/program/config"
)

// Whatever answers at the socket must neither clear the terminal nor forge a row.
func TestCertificateNamesAreEscaped(t *testing.T) {
	const hostile = "\x1b[2J\nforged"
	cert := certtest.SelfSigned(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: hostile}, DNSNames: []string{hostile}, NotAfter: time.Now().Add(time.Hour),
	}).Cert
	for _, kind := range []string{config.KeyPair, config.TrustBundle} {
		var out strings.Builder
		err := newPrinter(&out, "table").print([]secretShown{{Name: hostile, Kind: kind, Certificates: []certShown{showCert(cert)}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Contains(got, "\x1b") || strings.Count(got, "\n") != 2 || !strings.Contains(got, `\x1b[2J\nforged`) {
			t.Errorf("%s: %q", kind, got)
		}
	}
}
