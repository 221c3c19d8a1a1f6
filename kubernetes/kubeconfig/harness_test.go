package kubeconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token    = "eyJhbGciOiJSUzI1NiJ9.c3lzdGVtOnNlcnZpY2VhY2NvdW50.c2lnbmF0dXJl"
	password = "correct-horse-battery-staple-0123456789"
)

// pair is a certificate that is its own root, and its key; both PEM in base64.
func pair(t testing.TB) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	asDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", asDER)
}

// file is a kubeconfig with these fields of the cluster and the user, one in a line.
func file(cluster, user string) string {
	indent := func(text string) string {
		return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
	}
	return "apiVersion: v1\nkind: Config\ncurrent-context: main\ncontexts:\n- name: main\n  context: {cluster: east, user: reader}\n" +
		"clusters:\n- name: east\n  cluster:\n" + indent(cluster) + "\nusers:\n- name: reader\n  user:\n" + indent(user) + "\n"
}

const (
	server   = "server: https://api.example.org:6443"
	bearer   = "token: " + token
	goodCA   = "certificate-authority-data: "
	execUser = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}"
)
