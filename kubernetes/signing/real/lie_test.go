//go:build e2e

package real_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// What attackers change of a genuine request.

func nodeUID(a *arena, r *certificatesv1.PodCertificateRequest) { r.Spec.NodeUID = a.nodes["two"] }
func podUID(a *arena, r *certificatesv1.PodCertificateRequest) {
	r.Spec.PodUID = a.targets["elsewhere"].UID
}
func staleAccount(a *arena, r *certificatesv1.PodCertificateRequest) {
	r.Spec.ServiceAccountUID = a.stale
}

func nodeOne(a *arena, r *certificatesv1.PodCertificateRequest) {
	r.Spec.NodeName, r.Spec.NodeUID = "one", a.nodes["one"]
}

func otherAccount(_ *arena, r *certificatesv1.PodCertificateRequest) {
	r.Spec.ServiceAccountName = "admin"
}

func namespace(name string) func(*arena, *certificatesv1.PodCertificateRequest) {
	return func(_ *arena, r *certificatesv1.PodCertificateRequest) { r.Namespace = name }
}

func signerName(name string) func(*arena, *certificatesv1.PodCertificateRequest) {
	return func(_ *arena, r *certificatesv1.PodCertificateRequest) { r.Spec.SignerName = name }
}

func seconds(n int32) func(*arena, *certificatesv1.PodCertificateRequest) {
	return func(_ *arena, r *certificatesv1.PodCertificateRequest) { r.Spec.MaxExpirationSeconds = &n }
}

func annotation(key string) func(*arena, *certificatesv1.PodCertificateRequest) {
	return func(_ *arena, r *certificatesv1.PodCertificateRequest) {
		r.Spec.UnverifiedUserAnnotations = map[string]string{key: "admin.bank.svc"}
	}
}

func rawCSR(der []byte) func(*arena, *certificatesv1.PodCertificateRequest) {
	return func(_ *arena, r *certificatesv1.PodCertificateRequest) { r.Spec.StubPKCS10Request = der }
}

func forged(_ *arena, r *certificatesv1.PodCertificateRequest) {
	r.Spec.StubPKCS10Request[len(r.Spec.StubPKCS10Request)-1] ^= 1
}

func huge(a *arena, r *certificatesv1.PodCertificateRequest) {
	padding := pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: make([]byte, 11<<10)}
	template := &x509.CertificateRequest{ExtraExtensions: []pkix.Extension{padding}}
	r.Spec.StubPKCS10Request = kubetest.CSR(a.t, ecdsaKey(a.t, elliptic.P256()), template)
}

func curve(c elliptic.Curve) func(*arena, *certificatesv1.PodCertificateRequest) {
	return func(a *arena, r *certificatesv1.PodCertificateRequest) {
		r.Spec.StubPKCS10Request = kubetest.CSR(a.t, ecdsaKey(a.t, c), &x509.CertificateRequest{})
	}
}

func rsaKey(a *arena, r *certificatesv1.PodCertificateRequest) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(a.t, err)
	r.Spec.StubPKCS10Request = kubetest.CSR(a.t, key, &x509.CertificateRequest{})
}

func edwards(a *arena, r *certificatesv1.PodCertificateRequest) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(a.t, err)
	r.Spec.StubPKCS10Request = kubetest.CSR(a.t, key, &x509.CertificateRequest{})
}

// toSignCode is the extended key usage for that (RFC 5280, section 4.2.1.12), which some CAs copy.
var toSignCode = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: []byte{0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 3}}}

func withNames(template *x509.CertificateRequest) func(*arena, *certificatesv1.PodCertificateRequest) {
	return func(a *arena, r *certificatesv1.PodCertificateRequest) {
		r.Spec.StubPKCS10Request = kubetest.CSR(a.t, ecdsaKey(a.t, elliptic.P256()), template)
	}
}

func ecdsaKey(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	must(t, err)
	return key
}
