package gateway_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	typeURL    = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	web        = "kubernetes-gateway://shop/web"
	serverName = "discovery.test"
)

// authority signs for both ends.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	a.cert = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(1000 * time.Hour),
	}, &a.key.PublicKey)
	return a
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Minute)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func (a *authority) pem() []byte { return encode("CERTIFICATE", a.cert.Raw) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// leaf returns a chain and key for the name.
func (a *authority) leaf(t *testing.T, name string, life time.Duration) (chain, keyPEM []byte) {
	t.Helper()
	return a.issue(t, &x509.Certificate{DNSNames: []string{name}, URIs: []*url.URL{spiffeID(name)}, NotAfter: time.Now().Add(life)})
}

func spiffeID(name string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "test", Path: "/" + name}
}

// issue returns a chain and key of a certificate like this.
func (a *authority) issue(t *testing.T, template *x509.Certificate) (chain, keyPEM []byte) {
	t.Helper()
	key := newKey(t)
	cert := a.sign(t, template, &key.PublicKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", cert.Raw), encode("PRIVATE KEY", der)
}

// own are the agent's secrets; a test puts them there.
type own struct {
	mu     sync.Mutex
	items  map[string]*secret.Item
	notify func(string)
}

func (o *own) Peek(_ secret.Caller, name string) (*secret.Item, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if item := o.items[name]; item != nil {
		return item, nil
	}
	return nil, secret.ErrNotReady
}

func (o *own) Watch(_ secret.Caller, _ string, notify func(string)) (func(), error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notify = notify
	return func() {}, nil
}

func (o *own) put(item *secret.Item) {
	o.mu.Lock()
	o.items[item.Name] = item
	notify := o.notify
	o.mu.Unlock()
	if notify != nil {
		notify(item.Name)
	}
}

// service is a discovery service in memory.
type service struct {
	t      *testing.T
	ca     *authority
	mu     sync.Mutex
	items  map[string]*discoveryv3.Resource // nil: not ready
	notify map[int]func()
	next   int
	calls  []call
	events []xds.Event[string]
	mute   bool // streams are never answered
	refuse error
	gone   bool // connections are refused

	shown    *x509.Certificate // of this kind is its certificate, from the next start on
	listener *bufconn.Listener
	engine   *xds.Engine[string]
	grpc     *grpc.Server
	dials    int
}

// call is what a stream came with.
type call struct {
	who     string // of the certificate
	headers metadata.MD
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, ca: newAuthority(t), items: map[string]*discoveryv3.Resource{}, notify: map[int]func(){}}
	s.shown = &x509.Certificate{DNSNames: []string{serverName}, NotAfter: time.Now().Add(1000 * time.Hour)}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *service) start() {
	s.t.Helper()
	chain, key := s.ca.issue(s.t, s.shown)
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		s.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.cert)
	s.engine, err = xds.New(xds.Config[string]{
		Types: []xds.Type[string]{{URL: typeURL, Source: s}}, Admit: s.admit,
		Observe: func(e xds.Event[string]) { s.mu.Lock(); s.events = append(s.events, e); s.mu.Unlock() },
		Limits:  xds.Limits{RequireNode: true},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.grpc = grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool, MinVersion: tls.VersionTLS13,
	})))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, &ads{service: s})
	listener := bufconn.Listen(1 << 20)
	s.mu.Lock()
	s.listener, s.gone = listener, false
	s.mu.Unlock()
	server := s.grpc
	go func() { _ = server.Serve(listener) }()
}

func (s *service) stop() {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	s.engine.Close(nil)
	s.grpc.Stop()
}

type ads struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	*service
}

func (a *ads) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	a.mu.Lock()
	mute, engine := a.mute, a.engine
	a.mu.Unlock()
	if mute {
		<-stream.Context().Done()
		return stream.Context().Err()
	}
	return engine.StreamDelta(stream, "")
}

func (s *service) admit(ctx context.Context) (string, error) {
	p, _ := peer.FromContext(ctx)
	headers, _ := metadata.FromIncomingContext(ctx)
	c := call{headers: headers}
	if certs := p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates; len(certs) > 0 {
		c.who = certs[0].DNSNames[0]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	return c.who, s.refuse
}

func (s *service) Peek(_, name string) (*xds.Resource, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, known := s.items[name]
	switch {
	case !known:
		return nil, xds.ErrUnknown
	case item == nil:
		return nil, xds.ErrNotReady
	}
	return &xds.Resource{Name: name, Version: item.Version, Body: item.Resource}, nil
}

func (s *service) Watch(_, name string, notify func(string)) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	id := s.next
	s.notify[id] = func() { notify(name) }
	return func() { s.mu.Lock(); delete(s.notify, id); s.mu.Unlock() }, nil
}

// change changes what the service says, and tells.
func (s *service) change(how func()) {
	s.mu.Lock()
	how()
	var all []func()
	for _, notify := range s.notify {
		all = append(all, notify)
	}
	s.mu.Unlock()
	for _, notify := range all {
		notify()
	}
}

func (s *service) put(name string, m *tlsv3.Secret) {
	s.t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		s.t.Fatal(err)
	}
	s.change(func() { s.items[name] = &discoveryv3.Resource{Version: rand.Text(), Resource: body} })
}

func (s *service) dial(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	s.dials++
	gone, listener := s.gone, s.listener
	s.mu.Unlock()
	if gone {
		return nil, errors.New("connection refused")
	}
	return listener.DialContext(ctx)
}

func (s *service) dialled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

func (s *service) called() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...)
}

// told counts the events of a kind, and forgets all.
func (s *service) told(kind xds.EventKind) (n int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == kind {
			n++
			reason = e.Reason
		}
	}
	s.events = nil
	return n, reason
}

// world is a client with its service and secrets, in a bubble.
type world struct {
	*service
	t      *testing.T
	own    *own
	client *gateway.Client
	log    *bytes.Buffer
	events map[gateway.Event]int
	mu     sync.Mutex
	end    func()
}

// inWorld runs a test with a client that holds a certificate for 100 hours.
func inWorld(t *testing.T, adjust func(*world, *gateway.Config), test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{service: newService(t), t: t, own: &own{items: map[string]*secret.Item{}}, log: &bytes.Buffer{}, events: map[gateway.Event]int{}}
		w.own.put(&secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Roots: w.ca.pem()})
		w.certificate("first", 100*time.Hour)
		cfg := gateway.Config{
			Address: serverName + ":15012", NodeID: "gateway~10.0.0.1~web~shop", Secrets: w.own, Dial: w.dial,
			Observe: func(e gateway.Event) { w.mu.Lock(); w.events[e]++; w.mu.Unlock() },
			Log:     slog.New(slog.NewTextHandler(w.log, nil)),
		}
		if adjust != nil {
			adjust(w, &cfg)
		}
		var err error
		if w.client, err = gateway.New(cfg); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.client.Run(ctx) }()
		w.end = sync.OnceFunc(func() { cancel(); <-ended })
		defer w.end()
		test(w)
		w.end()
		if bytes.Contains(w.log.Bytes(), []byte("PRIVATE KEY")) {
			t.Error("the log has a key")
		}
	})
}

// certificate has the agent hold another certificate.
func (w *world) certificate(name string, life time.Duration) {
	w.t.Helper()
	chain, key := w.ca.leaf(w.t, name, life)
	w.own.put(&secret.Item{
		Name: "default", Kind: secret.KeyPair, Chain: chain, Key: key, NotAfter: time.Now().Add(life), Version: rand.Text(),
	})
}

// pair is a good secret.
func (w *world) pair(name string) *tlsv3.Secret {
	w.t.Helper()
	chain, key := w.ca.leaf(w.t, "web.test", time.Hour)
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(chain), PrivateKey: inline(key),
	}}}
}

func (w *world) roots(name string) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(w.ca.pem())}}}
}

func inline(text []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
}

// watch watches a name as a stream does; the channel gets each notice.
func (w *world) watch(name string) (notices chan string, stop func()) {
	w.t.Helper()
	notices = make(chan string, 100)
	stop, err := w.client.Watch(secret.Caller{}, name, func(name string) { notices <- name })
	if err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return notices, stop
}

// holds demands that a name is held with this content.
func (w *world) holds(name string, want *tlsv3.Secret) {
	w.t.Helper()
	synctest.Wait()
	resource, err := w.client.Peek(secret.Caller{}, name)
	if err != nil {
		w.t.Fatalf("%s: %v\n%s", name, err, w.log)
	}
	var got tlsv3.Secret
	if err := resource.Body.UnmarshalTo(&got); err != nil || !proto.Equal(&got, want) {
		w.t.Fatalf("%s: another secret is held (%v)\n%s", name, err, w.log)
	}
}

func (w *world) answers(name string, want error) {
	w.t.Helper()
	synctest.Wait()
	if _, err := w.client.Peek(secret.Caller{}, name); !errors.Is(err, want) {
		w.t.Fatalf("%s: got %v, want %v\n%s", name, err, want, w.log)
	}
}

func (w *world) count(e gateway.Event) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[e]
}

// token has the client have one, and counts those that were rejected.
func token(text string, rejected *int) func(*world, *gateway.Config) {
	return func(w *world, c *gateway.Config) {
		w.own.mu.Lock()
		delete(w.own.items, "default")
		w.own.mu.Unlock()
		c.Token = func(context.Context) (ca.Bearer, error) { return ca.Bearer{Token: ca.Token(text)}, nil }
		c.TokenRejected = func(ca.Token) { *rejected++ }
	}
}

var errNotYou = status.Error(codes.Unauthenticated, "not you")

// pass lets a minute go by: the longest wait after a failure.
func (w *world) pass() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// plaintext is a service that answers what is no TLS, and notes what it is told.
func plaintext(heard chan<- []byte) func(context.Context, string) (net.Conn, error) {
	return func(context.Context, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			buffer := make([]byte, 64<<10)
			n, _ := theirs.Read(buffer)
			select {
			case heard <- buffer[:n]:
			default:
			}
			_, _ = theirs.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		}()
		return ours, nil
	}
}
