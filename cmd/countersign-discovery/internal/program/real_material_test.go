//go:build e2e && linux

package program

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"maps"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// issued is a self-signed certificate with its key.
type issued struct{ *certtest.Pair }

func issue(t *testing.T, name string, ends time.Time) issued {
	t.Helper()
	return issued{certtest.SelfSigned(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: ends.Add(-1000 * time.Hour), NotAfter: ends,
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte{1},
	})}
}

func fresh(t *testing.T, name string) issued {
	t.Helper()
	return issue(t, name, time.Now().Add(500*time.Hour))
}

func namedAuthority(t *testing.T, name string) authority {
	t.Helper()
	return authorityOf(fresh(t, name).Pair)
}

func (i issued) crl(t *testing.T) []byte {
	t.Helper()
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), NextUpdate: time.Now().Add(time.Hour)}, i.Cert, i.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// staple is the shell of an OCSP response that says that all is well.
func staple(t *testing.T) []byte {
	t.Helper()
	type content struct {
		Type     asn1.ObjectIdentifier
		Response []byte
	}
	der, err := asn1.Marshal(struct {
		Status  asn1.Enumerated
		Content content `asn1:"explicit,tag:0"`
	}{0, content{asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 1}, []byte("signed")}})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// data are the entries of a secret.
type data = map[string][]byte

// tlsOf has a certificate of that name with its key, and a CA called "ca of" it.
func tlsOf(t *testing.T, name string) data {
	t.Helper()
	return merged(pairOf(t, name, "tls.crt", "tls.key"), data{"ca.crt": fresh(t, "ca of "+name).PEM()})
}

func pairOf(t *testing.T, name, chain, key string) data {
	t.Helper()
	of := fresh(t, name)
	return data{chain: of.PEM(), key: of.KeyPEM(t)}
}

// caOf has a CA of that name with its revocation list.
func caOf(t *testing.T, name, ca, crl string) data {
	t.Helper()
	of := fresh(t, name)
	return data{ca: of.PEM(), crl: of.crl(t)}
}

func merged(all ...data) data {
	out := data{}
	for _, d := range all {
		maps.Copy(out, d)
	}
	return out
}

// shows is the TLS of a client with a certificate that lasts so long and has these URIs.
func (w *world) shows(t *testing.T, signer authority, lasts time.Duration, ids ...string) *tls.Config {
	t.Helper()
	cfg := w.signs["home"].client(t, "")
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lasts),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, id := range ids {
		uri, err := url.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	cfg.Certificates = []tls.Certificate{*signer.issue(t, template).TLS()}
	return cfg
}
