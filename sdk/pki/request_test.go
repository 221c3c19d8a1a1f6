package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"testing"
)

// identities are of each kind of name, alone and together; the last one's names make
// lengths that DER writes in two bytes more.
func identities(t *testing.T) map[string]Identity {
	t.Helper()
	long := make([]string, 40)
	for i := range long {
		long[i] = fmt.Sprintf("a-name-that-is-rather-long-%d.shop.svc.cluster.local", i)
	}
	out := map[string]Identity{}
	for name, of := range map[string]struct {
		spiffeID string
		dns, ips []string
	}{
		"a SPIFFE ID": {spiffeID: "spiffe://cluster.local/ns/shop/sa/web"},
		"a DNS name":  {dns: []string{"web.shop.test"}},
		"addresses":   {ips: []string{"10.0.0.1", "2001:db8::1"}},
		"all":         {"spiffe://cluster.local/ns/shop/sa/web", []string{"web.shop.test", "*.shop.test"}, []string{"10.0.0.1"}},
		"many":        {"spiffe://cluster.local/" + strings.Repeat("a", 1900), long, nil},
	} {
		id, err := NewIdentity(of.spiffeID, of.dns, of.ips)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = id
	}
	return out
}

func TestCSRMatchesStandardLibrary(t *testing.T) {
	for _, kind := range available() {
		key := mustKey(t, kind)
		for what, id := range identities(t) {
			ours, err := CreateCSR(key, id)
			if err != nil {
				t.Fatalf("%s, %s: %v", kind, what, err)
			}
			got, err := ParseCSR(ours) // which checks the signature
			if err != nil {
				t.Fatalf("%s, %s: %v", kind, what, err)
			}
			want := standardRequest(t, key, id)
			if !bytes.Equal(got.RawTBSCertificateRequest, want.RawTBSCertificateRequest) || got.SignatureAlgorithm != want.SignatureAlgorithm {
				t.Errorf("%s, %s: another request, or another algorithm (%s, %s)", kind, what, got.SignatureAlgorithm, want.SignatureAlgorithm)
			}
			// Of what surrounds it, only the random signature differs: RSA's and Ed25519's are not.
			if _, random := key.(*ecdsa.PrivateKey); !random && !kind.isMLDSA() && !bytes.Equal(got.Raw, want.Raw) {
				t.Errorf("%s, %s: other bytes", kind, what)
			}
			if len(got.Subject.Names) != 0 || !SameKey(got.PublicKey, key.Public()) || len(got.DNSNames) != len(id.DNSNames) || len(got.IPAddresses) != len(id.IPAddresses) || (len(got.URIs) == 1) != (id.SPIFFEID != nil) {
				t.Errorf("%s, %s: read back as %v %v %v", kind, what, got.URIs, got.DNSNames, got.IPAddresses)
			}
		}
	}
}

// standardRequest is what the standard library makes of the same names and key.
func standardRequest(t *testing.T, key crypto.Signer, id Identity) *x509.CertificateRequest {
	t.Helper()
	names, err := marshalNames(id)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		ExtraExtensions: []pkix.Extension{{Id: oidSubjectAltName, Critical: true, Value: names}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

func TestUnsupportedKeySignsNoCSR(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := createRequest(key, pkix.Extension{Id: oidSubjectAltName}); err == nil {
		t.Error("a key of P-521 signed a request")
	}
}
