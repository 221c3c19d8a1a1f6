//go:build linux

package kubetest

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/countersign-dev/countersign/internal/test/certtest"
)

// authority signs the server and client certificates of one cluster.
type authority struct{ *certtest.Pair }

// issue returns a certificate and its key, both PEM.
func (a authority) issue(tb testing.TB, subject pkix.Name, usage x509.ExtKeyUsage) (cert, key []byte) {
	tb.Helper()
	template := &x509.Certificate{
		Subject: subject, NotBefore: a.Cert.NotBefore, NotAfter: a.Cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	if usage == x509.ExtKeyUsageServerAuth {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	pair := a.Issue(tb, template)
	return pair.PEM(), pair.KeyPEM(tb)
}

// writeFiles writes the files that kube-apiserver reads.
func (c *Cluster) writeFiles() {
	c.t.Helper()
	cert, key := c.authority.issue(c.t, pkix.Name{CommonName: "kube-apiserver"}, x509.ExtKeyUsageServerAuth)
	accounts, err := x509.MarshalECPrivateKey(certtest.Root(c.t).Key) // it takes no other form
	must(c.t, err)
	for name, content := range map[string][]byte{
		"ca.pem": c.CA, "server.pem": cert, "server-key.pem": key,
		"accounts-key.pem": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: accounts}),
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
