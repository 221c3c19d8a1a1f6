package discovery_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/internal/test/addressed"
	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/logtest"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience  = 2 * time.Minute
	secretURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	thingURL  = "type.googleapis.com/example.Thing"
	web       = "spiffe://example.org/ns/shop/sa/web"
)

// place is a server with what it serves, over connections in memory.
type place struct {
	t           testing.TB
	root        *certtest.Pair // of the server and of example.org
	source      *memorySource
	server      *discovery.Server
	tls         *addressed.Listener
	plain       *bufconn.Listener
	log         logtest.Log
	down        context.CancelFunc
	over        chan error
	mu          sync.Mutex
	roots       map[string]*pki.Bundle
	certificate *certtest.Pair
}

// newPlace starts a server; change, where there is one, has the last word on its config.
func newPlace(t testing.TB, change func(p *place, c *discovery.Config)) *place {
	t.Helper()
	p := &place{
		t: t, root: certtest.Root(t), source: newMemorySource(), tls: addressed.Listen(1 << 12), plain: bufconn.Listen(1 << 16),
		over: make(chan error, 1),
	}
	p.trust("example.org", p.root)
	p.certificate = p.root.Leaf(t, 1000*time.Hour, "spiffe://example.org/server")
	p.source.put("a", "1")
	cfg := discovery.Config{
		Types:         []discovery.Type{{URL: thingURL, Source: p.source}, {URL: secretURL, Source: p.source}},
		Authenticator: authn.Ordered{{Name: "certificate", Authenticator: authn.Certificates{Roots: p.bundle}}},
		TLS:           &tls.Config{GetCertificate: p.serverCertificate},
		LocalCluster:  "local", Log: p.log.Logger(),
	}
	if change != nil {
		change(p, &cfg)
	}
	server, err := discovery.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.server = server
	ctx, cancel := context.WithCancel(context.Background())
	p.down = cancel
	go func() { p.over <- server.Run(ctx, discovery.Listeners{TLS: p.tls, Plaintext: p.plain}) }()
	return p
}

func (p *place) trust(domain string, roots ...*certtest.Pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roots == nil {
		p.roots = map[string]*pki.Bundle{}
	}
	var certs []*x509.Certificate
	for _, root := range roots {
		certs = append(certs, root.Cert)
	}
	p.roots[domain] = pki.NewBundle(certs...)
}

func (p *place) bundle(domain string) *pki.Bundle {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roots[domain]
}

func (p *place) serverCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.certificate.TLS(), nil
}

// close stops the server at once and waits for it.
func (p *place) close() {
	p.t.Helper()
	p.down()
	if err := <-p.over; err != nil {
		p.t.Error(err)
	}
}

// inBubble runs a story in time that the test moves.
func inBubble(t *testing.T, change func(p *place, c *discovery.Config), story func(t *testing.T, p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, change)
		defer p.close()
		story(t, p)
	})
}

// dial connects over TLS, with the certificate if there is one.
func (p *place) dial(certificate *certtest.Pair, options ...grpc.DialOption) *grpc.ClientConn {
	p.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(p.root.Cert)
	cfg := &tls.Config{RootCAs: pool, ServerName: "server"}
	if certificate != nil {
		cfg.Certificates = []tls.Certificate{*certificate.TLS()}
	}
	return p.connect(p.tls.Listener, append(options, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))...)
}

func (p *place) dialPlaintext() *grpc.ClientConn {
	p.t.Helper()
	return p.connect(p.plain, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func (p *place) connect(to *bufconn.Listener, options ...grpc.DialOption) *grpc.ClientConn {
	p.t.Helper()
	conn, err := grpc.NewClient("passthrough:///server", append([]grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return to.DialContext(ctx) }),
	}, options...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	return conn
}
