//go:build linux

package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority signs the server and client certificates of one cluster.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	key := newKey(tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubetest"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(tb, err)
	cert, err := x509.ParseCertificate(der)
	must(tb, err)
	return &authority{cert: cert, key: key, pem: encode("CERTIFICATE", der)}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(tb testing.TB, key *ecdsa.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	must(tb, err)
	return encode("EC PRIVATE KEY", der)
}

// issue returns a certificate and its key, both PEM.
func (a *authority) issue(tb testing.TB, subject pkix.Name, usage x509.ExtKeyUsage) (cert, key []byte) {
	tb.Helper()
	private := newKey(tb)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject,
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	if usage == x509.ExtKeyUsageServerAuth {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	must(tb, err)
	return encode("CERTIFICATE", der), encodeKey(tb, private)
}

// writeFiles writes the files that kube-apiserver reads.
func (c *Cluster) writeFiles() {
	c.t.Helper()
	cert, key := c.authority.issue(c.t, pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth)
	for name, content := range map[string][]byte{
		"ca.pem": c.CA, "server.pem": cert, "server-key.pem": key, "accounts-key.pem": encodeKey(c.t, newKey(c.t)),
	} {
		must(c.t, os.WriteFile(c.file(name), content, 0o600))
	}
}

// Admin returns a user with all rights.
func (c *Cluster) Admin() *clientcmdapi.AuthInfo { return c.User("admin", "system:masters") }

// User returns a user with a client certificate for that name and these groups.
func (c *Cluster) User(name string, groups ...string) *clientcmdapi.AuthInfo {
	c.t.Helper()
	cert, key := c.authority.issue(c.t, pkix.Name{CommonName: name, Organization: groups}, x509.ExtKeyUsageClientAuth)
	return &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
}
