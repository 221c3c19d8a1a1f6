package gateway_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// service is a discovery service in memory.
type service struct {
	t      *testing.T
	ca     *certtest.Pair
	mu     sync.Mutex
	items  map[string]*discoveryv3.Resource // nil: not ready
	notify map[int]func()
	next   int
	calls  []call
	events []xds.Event[string]
	serve  func(adsServer) error // in place of the engine
	refuse error
	gone   bool // connections are refused

	shown    *x509.Certificate // of this kind is its certificate, from the next start on
	below    *certtest.Pair    // signs it in place of ca
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
	s := &service{t: t, ca: certtest.Root(t), items: map[string]*discoveryv3.Resource{}, notify: map[int]func(){}}
	s.shown = &x509.Certificate{DNSNames: []string{serverName}, NotAfter: time.Now().Add(1000 * time.Hour)}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *service) start() {
	s.t.Helper()
	signer := s.ca
	if s.below != nil {
		signer = s.below
	}
	s.shown.NotBefore = time.Now().Add(-time.Minute)
	pair := *signer.Issue(s.t, s.shown).TLS()
	pair.Certificate = append(pair.Certificate, signer.Cert.Raw)
	pool := x509.NewCertPool()
	pool.AddCert(s.ca.Cert)
	var err error
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

type adsServer = discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer

type ads struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	*service
}

func (a *ads) DeltaAggregatedResources(stream adsServer) error {
	a.mu.Lock()
	serve, engine := a.serve, a.engine
	a.mu.Unlock()
	if serve != nil {
		return serve(stream)
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

// change changes the service's answer, and pushes it.
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
	item := s.packed(m)
	s.change(func() { s.items[name] = item })
}

// packed is a secret as it is sent.
func (s *service) packed(m *tlsv3.Secret) *discoveryv3.Resource {
	s.t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		s.t.Fatal(err)
	}
	return &discoveryv3.Resource{Name: m.GetName(), Version: rand.Text(), Resource: body}
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
			reason = e.Client.Message
		}
	}
	s.events = nil
	return n, reason
}

// plaintext is a service that answers in plaintext, and records what it receives.
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
