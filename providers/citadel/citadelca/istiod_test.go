package citadelca

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	security "github.com/countersign-dev/countersign/proto/istio/security/v1alpha1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// istiod is a CA server on a real socket, with TLS unless it was made without.
type istiod struct {
	security.UnimplementedIstioCertificateServiceServer
	address string     // localhost:port, or the listener's address
	tls     *catest.CA // who signed the server's own certificate
	mesh    *catest.CA // who signs workloads

	mu      sync.Mutex
	pair    tls.Certificate // the server's own
	seen    []seen
	planned []answer
}

// seen is what a call came with.
type seen struct {
	request  *security.IstioCertificateRequest
	metadata metadata.MD
	client   *x509.Certificate // nil where none was shown
	left     time.Duration     // until the call's deadline; 0 without one
}

// answer stands in for a signed certificate.
type answer func(ctx context.Context) ([]string, error)

func start(t *testing.T) *istiod {
	t.Helper()
	i := &istiod{tls: catest.NewCA(catest.Options{}), mesh: catest.NewCA(catest.Options{Intermediates: 1})}
	i.pair = pairOf(t, i.tls, "", localName)
	clients := i.mesh.Bundle().Pool()
	i.serve(t, listen(t, "127.0.0.1:0"), grpc.Creds(credentials.NewTLS(&tls.Config{
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients, NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			i.mu.Lock()
			defer i.mu.Unlock()
			pair := i.pair
			return &pair, nil
		},
	})))
	_, port, _ := net.SplitHostPort(i.address)
	i.address = "localhost:" + port
	return i
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func (i *istiod) serve(t *testing.T, listener net.Listener, opts ...grpc.ServerOption) {
	t.Helper()
	server := grpc.NewServer(opts...)
	security.Register(server, i)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	i.address = listener.Addr().String()
}

// pairOf has a CA sign a certificate for a server or a client.
func pairOf(t *testing.T, authority *catest.CA, spiffeID string, dns ...string) tls.Certificate {
	t.Helper()
	chain, key := pemOf(t, authority, spiffeID, dns...)
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func pemOf(t *testing.T, authority *catest.CA, spiffeID string, names ...string) (chain, key []byte) {
	t.Helper()
	var dns, ips []string
	for _, name := range names {
		if _, err := netip.ParseAddr(name); err == nil {
			ips = append(ips, name)
		} else {
			dns = append(dns, name)
		}
	}
	return testkit.Pair(t, authority, testkit.Identity(t, spiffeID, dns, ips))
}

// present changes the server's certificate for the handshakes to come.
func (i *istiod) present(pair tls.Certificate) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pair = pair
}

// next plans what the next calls are answered with.
func (i *istiod) next(answers ...answer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.planned = append(i.planned, answers...)
}

func (i *istiod) calls() []seen {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]seen(nil), i.seen...)
}

// last returns the one call that was not looked at yet.
func (i *istiod) last(t *testing.T) seen {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.seen) != 1 {
		t.Fatalf("there were %d calls, not 1", len(i.seen))
	}
	call := i.seen[0]
	i.seen = nil
	return call
}

func (i *istiod) begin(ctx context.Context, request *security.IstioCertificateRequest) answer {
	call := seen{request: request}
	call.metadata, _ = metadata.FromIncomingContext(ctx)
	if end, ok := ctx.Deadline(); ok {
		call.left = time.Until(end)
	}
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			call.client = info.State.PeerCertificates[0]
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen = append(i.seen, call)
	if len(i.planned) == 0 {
		return nil
	}
	next := i.planned[0]
	i.planned = i.planned[1:]
	return next
}

// CreateCertificate answers as istiod with a plugged-in intermediate CA does.
func (i *istiod) CreateCertificate(ctx context.Context, request *security.IstioCertificateRequest) (*security.IstioCertificateResponse, error) {
	if planned := i.begin(ctx, request); planned != nil {
		chain, err := planned(ctx)
		return &security.IstioCertificateResponse{CertChain: chain}, err
	}
	chain, err := i.sign(ctx, request)
	return &security.IstioCertificateResponse{CertChain: chain}, err
}

// sign returns leaf, intermediate and root as istiod lays them out.
func (i *istiod) sign(ctx context.Context, request *security.IstioCertificateRequest) ([]string, error) {
	reply, err := i.mesh.CSRSign(ctx, ca.SignRequest{CSR: []byte(request.Csr), TTL: time.Duration(request.ValidityDuration) * time.Second})
	if err != nil {
		return nil, err
	}
	certs, err := pki.ParseCertificates(reply.Chain)
	if err != nil {
		return nil, err
	}
	return []string{string(pki.EncodeCertificates(certs[:1])), string(pki.EncodeCertificates(certs[1:])), string(reply.Roots)}, nil
}
