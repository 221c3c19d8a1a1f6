package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// workload is a program in Go that has its identity from the agent: it follows a
// certificate and ROOTCA on one stream, and opens the stream again when it ends.
type workload struct {
	name string

	mu      sync.Mutex
	changed notice
	pair    *tls.Certificate // with its Leaf
	roots   *pki.Bundle
	past    []*pki.Bundle // every different set of roots there was, the present one last
	streams int
}

// startWorkload returns when both secrets are there.
func startWorkload(t *testing.T, socket, name string) *workload {
	t.Helper()
	w := &workload{name: name, changed: newNotice()}
	client := dialSDS(t, socket)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w.follow(ctx, client)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	w.await(t, "a certificate and roots", func() bool { return w.pair != nil && w.roots != nil })
	return w
}

// await waits until done, which may look at the workload's fields.
func (w *workload) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	await(t, &w.mu, &w.changed, "the workload to have "+what, done)
}

// follow lives as long as one stream.
func (w *workload) follow(ctx context.Context, client secretv3.SecretDiscoveryServiceClient) error {
	stream, err := openStream(ctx, client)
	if err != nil {
		return err
	}
	names := []string{w.name, "ROOTCA"}
	if err := stream.subscribe(names...); err != nil {
		return err
	}
	w.opened()
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		secrets, err := secretsOf(response)
		if err != nil {
			return err
		}
		if err := w.take(secrets); err != nil {
			return err
		}
		if err := stream.ack(response, names...); err != nil {
			return err
		}
	}
}

func (w *workload) opened() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams++
	w.changed.tell()
}

func (w *workload) take(secrets map[string]*tlsv3.Secret) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.changed.tell()
	if secret := secrets["ROOTCA"]; secret != nil {
		roots, err := pki.ParseBundle(secret.GetValidationContext().GetTrustedCa().GetInlineBytes())
		if err != nil {
			return err
		}
		if w.roots == nil || !w.roots.Equal(roots) {
			w.past = append(w.past, roots)
		}
		w.roots = roots
	}
	if secret := secrets[w.name]; secret != nil {
		held := secret.GetTlsCertificate()
		pair, err := tls.X509KeyPair(held.GetCertificateChain().GetInlineBytes(), held.GetPrivateKey().GetInlineBytes())
		if err != nil {
			return err
		}
		w.pair = &pair
	}
	return nil
}

func (w *workload) certificate() *tls.Certificate {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pair
}

func (w *workload) bundle() *pki.Bundle {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roots
}

// tlsConfig presents the certificate as it is at the moment it is asked for, and
// takes only a server of the SPIFFE ID or DNS name.
func (w *workload) tlsConfig(server string) *tls.Config {
	return &tls.Config{
		ServerName: hostName(server),
		MinVersion: tls.VersionTLS12,
		// A post-quantum key exchange would be a quarter of what a probe costs.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}, // PostgreSQL takes P-256 alone
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return w.certificate(), nil
		},
		// The roots change, and a SPIFFE ID is no host name: VerifyConnection does it.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return w.verify(state.PeerCertificates, server)
		},
	}
}

func (w *workload) verify(chain []*x509.Certificate, server string) error {
	if len(chain) == 0 {
		return errors.New("the server showed no certificate")
	}
	above := x509.NewCertPool()
	for _, cert := range chain[1:] {
		above.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: w.bundle().Pool(), Intermediates: above})
	if err != nil {
		return err
	}
	if name := hostName(server); name != "" {
		return chain[0].VerifyHostname(name)
	}
	if len(chain[0].URIs) != 1 || chain[0].URIs[0].String() != server {
		return fmt.Errorf("the server is %v, not %s", chain[0].URIs, server)
	}
	return nil
}

// hostName returns "" for a SPIFFE ID.
func hostName(server string) string {
	if strings.Contains(server, "://") {
		return ""
	}
	return server
}
