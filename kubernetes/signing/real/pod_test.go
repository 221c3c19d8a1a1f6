//go:build e2e

package real_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
)

// files are what a pod finds in its volume.
type files struct{ credentials, roots []byte }

func (s *site) files(node *kubetest.Node, pod *corev1.Pod) (f files) {
	s.t.Helper()
	var err error
	f.credentials, err = node.ReadFile(pod, kubetest.CertificateVolume, kubetest.CredentialsFile)
	must(s.t, err)
	f.roots, err = node.ReadFile(pod, kubetest.CertificateVolume, kubetest.RootsFile)
	must(s.t, err)
	return f
}

func TestRealPodsTrustEachOther(t *testing.T) {
	o := open(t, kubetest.Start(t, kubetest.Options{Nodes: true}), ra.Limits{})
	o.checkPods(t)
}

// checkPods runs two pods on two nodes, which verify each other.
func (s *site) checkPods(t *testing.T) {
	t.Helper()
	s.Controllers()
	nodes := s.HollowNodes("one", "two")
	var all []files
	for i, account := range []string{"web", "database"} {
		s.ServiceAccount("shop", account)
		pod := s.CreatePod(kubetest.CertificatePod("shop", account+"-0", account, nodes[i].Name, signer))
		s.AwaitRunning(pod)
		all = append(all, s.files(nodes[i], pod))
	}
	web, database := all[0], all[1]
	t.Run("with crypto/tls", func(t *testing.T) { shakeHands(t, web, database, "database-0.shop.svc") })
	t.Run("with go-spiffe", func(t *testing.T) { verifySVID(t, web, database, "spiffe://example.org/ns/shop/sa/database") })
	t.Run("with OpenSSL", func(t *testing.T) { verifyWithOpenSSL(t, web, database) })
}

func shakeHands(t testing.TB, client, server files, name string) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- tls.Server(far, &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: server.pair(t), ClientCAs: server.pool(t), ClientAuth: tls.RequireAndVerifyClientCert,
			SessionTicketsDisabled: true, // nobody reads one
		}).HandshakeContext(ctx)
	}()
	must(t, tls.Client(near, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: client.pair(t), RootCAs: client.pool(t), ServerName: name,
	}).HandshakeContext(ctx))
	must(t, <-served)
}

func (f files) pair(t testing.TB) []tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(f.credentials, f.credentials)
	must(t, err)
	return []tls.Certificate{pair}
}

func (f files) pool(t testing.TB) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(f.roots) {
		t.Fatalf("no root in %q", f.roots)
	}
	return pool
}

func verifySVID(t testing.TB, verifier, shown files, want string) {
	t.Helper()
	bundle, err := x509bundle.Parse(spiffeid.RequireTrustDomainFromString("example.org"), verifier.roots)
	must(t, err)
	svid, err := x509svid.Parse(shown.credentials, shown.credentials)
	must(t, err)
	id, _, err := x509svid.Verify(svid.Certificates, bundle)
	must(t, err)
	if id.String() != want {
		t.Errorf("it is %s, want %s", id, want)
	}
}

func verifyWithOpenSSL(t *testing.T, verifier, shown files) {
	t.Helper()
	openssl, folder := programs.Foreign(t, "COUNTERSIGN_OPENSSL"), t.TempDir()
	for name, content := range map[string][]byte{"roots.pem": verifier.roots, "chain.pem": certificates(shown.credentials)} {
		must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	cmd := exec.Command(openssl, "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "roots.pem", "-untrusted", "chain.pem", "chain.pem")
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("chain.pem: OK")) {
		t.Errorf("%v: %s", err, out)
	}
}

// certificates returns the PEM blocks of certificates: the key stays where it is.
func certificates(credentials []byte) (chain []byte) {
	for block, rest := pem.Decode(credentials); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			chain = append(chain, pem.EncodeToMemory(block)...)
		}
	}
	return chain
}
