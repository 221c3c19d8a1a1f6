package tlsconfig_test

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// byName calls what a handshake for the name calls.
func byName(t *testing.T, o tlsconfig.Options, name string) (*tls.Certificate, error) {
	t.Helper()
	cfg, err := tlsconfig.ByServerName(o)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.GetCertificate(&tls.ClientHelloInfo{ServerName: name})
}

func TestHandshakeWaitsForTheCertificateOfItsName(t *testing.T) {
	held, err := secret.Obtain(t.Context(), catest.NewCA(catest.Options{}), "a.example.org")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	item, err := held.Peek(secret.Caller{}, "default")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var source secret.Map
		source.Set("a.example.org", nil)
		time.AfterFunc(5*time.Second, func() { source.Set("a.example.org", item) })
		began := time.Now()
		certificate, err := byName(t, tlsconfig.Options{Source: &source}, "a.example.org")
		if err != nil || certificate.Leaf.VerifyHostname("a.example.org") != nil || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if certificate, err = byName(t, tlsconfig.Options{Source: &source, Certificate: "a.example.org"}, ""); err != nil || certificate == nil {
			t.Errorf("without a server name: %v", err)
		}
		source.Set("b.example.org", nil)
		began = time.Now()
		_, err = byName(t, tlsconfig.Options{Source: &source}, "b.example.org")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("a certificate that never comes: %v after %s", err, time.Since(began))
		}
	})
}

func TestRotationReachesTheNextHandshakeByName(t *testing.T) {
	var source secret.Map
	cfg, err := tlsconfig.ByServerName(tlsconfig.Options{Source: &source})
	if err != nil {
		t.Fatal(err)
	}
	var last *tls.Certificate
	for range 2 {
		held, err := secret.Obtain(t.Context(), catest.NewCA(catest.Options{}), "a.example.org")
		if err != nil {
			t.Fatal(err)
		}
		item, err := held.Peek(secret.Caller{}, "default")
		if err != nil {
			t.Fatal(err)
		}
		source.Set("a.example.org", item)
		_ = held.Close()
		hello := &tls.ClientHelloInfo{ServerName: "a.example.org"}
		first, err := cfg.GetCertificate(hello)
		second, err2 := cfg.GetCertificate(hello)
		if err != nil || err2 != nil || first != second || first == last {
			t.Errorf("%v, %v; parsed once %t, replaced %t", err, err2, first == second, first != last)
		}
		last = first
	}
}

func TestServerByNameRefusesOptionsWithoutEffect(t *testing.T) {
	for what, o := range map[string]tlsconfig.Options{
		"no source": {}, "roots": {Source: &secret.Map{}, Roots: "ROOTCA"}, "sessions": {Source: &secret.Map{}, Sessions: 1},
	} {
		if _, err := tlsconfig.ByServerName(o); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// A client chooses among DNS names, not among all names that a source may have.
func TestServerNameThatIsNoDNSNameIsUnknown(t *testing.T) {
	held, err := secret.Obtain(t.Context(), catest.NewCA(catest.Options{}), "a.example.org")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	item, err := held.Peek(secret.Caller{}, "default")
	if err != nil {
		t.Fatal(err)
	}
	var source secret.Map
	for _, name := range []string{"file-cert:/etc/a.pem~/etc/a.key", "spiffe://example.org", "kubernetes://a"} {
		source.Set(name, item)
		if certificate, err := byName(t, tlsconfig.Options{Source: &source}, name); certificate != nil || err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	source.Set("A_b.example.org", item)
	if certificate, err := byName(t, tlsconfig.Options{Source: &source}, "A_b.example.org"); certificate == nil || err != nil {
		t.Error(err)
	}
}
