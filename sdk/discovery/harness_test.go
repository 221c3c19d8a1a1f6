package discovery_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/discovery"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience  = 10 * time.Second
	secretURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	thingURL  = "type.googleapis.com/example.Thing"
	web       = "spiffe://example.org/ns/shop/sa/web"
)

// shelf is a source of texts that everybody who has a cluster may have.
type shelf struct {
	mu      sync.Mutex
	texts   map[string]string
	watches map[*watch]bool
	asked   []discovery.Caller // by Peek
}

type watch struct {
	name   string
	notify func(string)
}

func newShelf() *shelf {
	return &shelf{texts: map[string]string{}, watches: map[*watch]bool{}}
}

func (s *shelf) Peek(caller *discovery.Caller, name string) (*xds.Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, *caller)
	text, known := s.texts[name]
	if !known || caller.Cluster == "" {
		return nil, xds.ErrUnknown
	}
	body, err := anypb.New(wrapperspb.String(text))
	return &xds.Resource{Name: name, Version: text, Body: body}, err
}

func (s *shelf) Watch(_ *discovery.Caller, name string, notify func(string)) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watch{name, notify}
	s.watches[w] = true
	return func() { s.mu.Lock(); defer s.mu.Unlock(); delete(s.watches, w) }, nil
}

// put changes a text and tells who watches it.
func (s *shelf) put(name, text string) {
	s.mu.Lock()
	s.texts[name] = text
	var told []func(string)
	for w := range s.watches {
		if w.name == name {
			told = append(told, w.notify)
		}
	}
	s.mu.Unlock()
	for _, notify := range told {
		notify(name)
	}
}

func (s *shelf) callers() []discovery.Caller {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// issuer is a CA in memory; a nil one signs for itself.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (i *issuer) issue(t testing.TB, template *x509.Certificate) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, signer := template, key
	if i != nil {
		parent, signer = i.cert, i.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{cert, key}
}

func (i *issuer) pair() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{i.cert.Raw}, PrivateKey: i.key, Leaf: i.cert}
}

func newRoot(t testing.TB) *issuer {
	return (*issuer)(nil).issue(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
}

// leaf is for the URIs and ends in ttl.
func (i *issuer) leaf(t testing.TB, ttl time.Duration, uris ...string) *issuer {
	t.Helper()
	return i.issue(t, leafOf(t, ttl, uris...))
}

func leafOf(t testing.TB, ttl time.Duration, uris ...string) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(ttl),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, DNSNames: []string{"server"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, uri := range uris {
		parsed, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	return template
}

// place is a server with what it serves, over connections in memory.
type place struct {
	t           testing.TB
	root        *issuer // of the server and of example.org
	shelf       *shelf
	server      *discovery.Server
	tls, plain  *bufconn.Listener
	log         *logs
	down        context.CancelFunc
	over        chan error
	mu          sync.Mutex
	roots       map[string]*pki.Bundle
	certificate *issuer
}

// newPlace starts a server; change, where there is one, has the last word on its config.
func newPlace(t testing.TB, change func(p *place, c *discovery.Config)) *place {
	t.Helper()
	p := &place{
		t: t, root: newRoot(t), shelf: newShelf(), tls: bufconn.Listen(1 << 12), plain: bufconn.Listen(1 << 16),
		log: &logs{}, over: make(chan error, 1),
	}
	p.trust("example.org", p.root)
	p.certificate = p.root.leaf(t, 1000*time.Hour, "spiffe://example.org/server")
	p.shelf.put("a", "1")
	cfg := discovery.Config{
		Types:         []discovery.Type{{URL: thingURL, Source: p.shelf}, {URL: secretURL, Source: p.shelf}},
		Authenticator: authn.Ordered{{Name: "certificate", Authenticator: authn.Certificates{Roots: p.bundle}}},
		TLS:           &tls.Config{GetCertificate: p.serverCertificate},
		LocalCluster:  "local", Log: slog.New(slog.NewTextHandler(p.log, nil)),
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

func (p *place) trust(domain string, roots ...*issuer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.roots == nil {
		p.roots = map[string]*pki.Bundle{}
	}
	var certs []*x509.Certificate
	for _, root := range roots {
		certs = append(certs, root.cert)
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
	return p.certificate.pair(), nil
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
func (p *place) dial(certificate *issuer, options ...grpc.DialOption) *grpc.ClientConn {
	p.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(p.root.cert)
	cfg := &tls.Config{RootCAs: pool, ServerName: "server"}
	if certificate != nil {
		cfg.Certificates = []tls.Certificate{*certificate.pair()}
	}
	return p.connect(p.tls, append(options, grpc.WithTransportCredentials(credentials.NewTLS(cfg)))...)
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

// client is one ADS stream.
type client struct {
	t    testing.TB
	ads  discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	node *corev3.Node // of the next request
	hang context.CancelFunc
	last *discoveryv3.DiscoveryResponse
}

// open opens a stream with metadata in pairs.
func open(t testing.TB, conn *grpc.ClientConn, pairs ...string) *client {
	t.Helper()
	ctx, hang := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), pairs...), 1000*time.Hour)
	ads, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		hang()
		t.Fatal(err)
	}
	return &client{t: t, ads: ads, node: &corev3.Node{Id: "node"}, hang: hang}
}

func nodeWith(fields map[string]any) *corev3.Node {
	data, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err)
	}
	return &corev3.Node{Id: "node", Metadata: data}
}

func (c *client) ask(typ string, names ...string) {
	_ = c.ads.Send(&discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: typ, ResourceNames: names}) // the answer tells
	c.node = nil
}

func (c *client) answer(bad *rpcstatus.Status, names ...string) {
	version := c.last.GetVersionInfo()
	if bad != nil {
		version = ""
	}
	_ = c.ads.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: c.last.GetTypeUrl(), ResourceNames: names, ResponseNonce: c.last.GetNonce(), VersionInfo: version, ErrorDetail: bad,
	})
}

// gets demands a response with that version.
func (c *client) gets(version string) {
	c.t.Helper()
	got, err := c.ads.Recv()
	if err != nil || got.GetVersionInfo() != version {
		c.t.Fatalf("got version %q, %v, want %q", got.GetVersionInfo(), err, version)
	}
	c.last = got
}

// ends demands that the stream ends with that status, and returns its text.
func (c *client) ends(want codes.Code) string {
	c.t.Helper()
	defer c.hang()
	got, err := c.ads.Recv()
	if status.Code(err) != want {
		c.t.Fatalf("got %v, %v, want %s", got, err, want)
	}
	return status.Convert(err).Message()
}

// logs is what was logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
