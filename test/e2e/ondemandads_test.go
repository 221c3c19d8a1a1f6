package e2e

import (
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

//go:embed envoy/ondemand.yaml
var onDemandBootstrap string

// startOnDemandEnvoy starts an Envoy that asks the agent at socket for each name that a client sends,
// and returns where it listens.
func startOnDemandEnvoy(t *testing.T, socket string) (e *envoy, address string) {
	t.Helper()
	e = runEnvoy(t, onDemandBootstrap, map[string]string{"Socket": socket, "APIType": string(incremental)})
	return e, e.address(t)
}

// shakeHands returns the certificate that address shows for a name.
func shakeHands(ctx context.Context, address, name string) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}} // the test looks at it
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// mustShakeHands demands a certificate of the name.
func mustShakeHands(t *testing.T, address, name string) *x509.Certificate {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	certificate, err := shakeHands(ctx, address, name)
	if err == nil {
		err = certificate.VerifyHostname(name)
	}
	if err != nil {
		t.Fatalf("handshake for %s: %v", name, err)
	}
	return certificate
}

// The agent's configured secrets come in the middle of handshakes, and a name that it does not have
// fails at once.
func TestEnvoyOnDemandGetsConfiguredSecretsOverADS(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	names := []string{"a.example.org", "b.example.org"}
	var secrets []map[string]any
	for _, name := range names {
		secrets = append(secrets, map[string]any{"name": name, "dns_names": []string{name}})
	}
	a := startAgent(t, agentConfig{selfSigned: true, secrets: secrets})
	_, address := startOnDemandEnvoy(t, a.socket)
	for _, name := range names {
		mustShakeHands(t, address, name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := shakeHands(ctx, address, "stranger.example.org"); err == nil || ctx.Err() != nil {
		t.Errorf("a handshake for an unknown name: %v, %v; want a refusal before the test's deadline", err, ctx.Err())
	}
	mustShakeHands(t, address, names[0])
}

// manyNames are more than Envoy's default circuit breaker (1,024 requests) lets through as streams.
const manyNames = 1500

func TestEnvoyGetsMoreNamesOverADSThanItMayOpenStreams(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	server, socket := serveNames(t, manyNames)
	_, address := startOnDemandEnvoy(t, socket)
	for i := range manyNames {
		mustShakeHands(t, address, nameOf(i))
	}
	if streams := server.Streams(); streams != 1 {
		t.Errorf("Envoy has %d streams, want one", streams)
	}
	mixed := strings.ToUpper(nameOf(1))
	mustShakeHands(t, address, mixed)
}

func nameOf(i int) string { return fmt.Sprintf("%04d.example.org", i) }

// lowered looks names up in lower case, as a source of DNS names does.
type lowered struct{ *secrettest.Source }

func (l lowered) Peek(caller secret.Caller, name string) (*secret.Item, error) {
	return l.Source.Peek(caller, strings.ToLower(name))
}

// serveNames serves that many certificates on a socket.
func serveNames(t *testing.T, n int) (*sds.Server, string) {
	t.Helper()
	items, root, key := make([]*secret.Item, n), certtest.Root(t), curve(t, elliptic.P256())
	encoded, err := pki.EncodeKey(key)
	mustDo(t, err)
	for i := range items {
		leaf := certtest.Leaf(t, time.Hour)
		leaf.DNSNames = []string{nameOf(i)}
		chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Sign(t, leaf, key.Public()).Raw})
		items[i] = &secret.Item{Name: nameOf(i), Kind: secret.KeyPair, Version: "1", Chain: chain, Key: encoded}
	}
	socket := filepath.Join(proctest.Folder(t), "socket")
	server, err := sds.Listen(sds.Config{Path: socket}, lowered{secrettest.New(items...)})
	mustDo(t, err)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve() })
	t.Cleanup(func() { _ = server.Close(context.Background()); served.Wait() })
	return server, socket
}
