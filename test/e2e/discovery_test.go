package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// discovery is a discovery service on this machine, for one gateway: it answers who shows
// Envoy's certificate over mutual TLS.
type discovery struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	address string
	creds   credentials.TransportCredentials
	engine  *xds.Engine[string]
	server  *grpc.Server
	served  chan struct{}

	mu      sync.Mutex
	secrets map[string]*xds.Resource
	notify  map[int]func()
	next    int
}

// startDiscovery serves with a certificate of its own root, whose PEM it returns, to
// clients whose certificate leads to the other.
func startDiscovery(t *testing.T, clients *x509.Certificate) (d *discovery, rootPEM []byte) {
	t.Helper()
	root := newAuthority(t, "discovery root")
	pool := x509.NewCertPool()
	pool.AddCert(clients)
	pair, err := tls.X509KeyPair(root.leaf(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}))
	if err != nil {
		t.Fatal(err)
	}
	d = &discovery{secrets: map[string]*xds.Resource{}, notify: map[int]func(){}, address: "127.0.0.1:0"}
	d.creds = credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})
	d.start(t)
	t.Cleanup(d.stop)
	return d, root.PEM()
}

// start serves, the first time or again at the same address.
func (d *discovery) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	d.address = listener.Addr().String()
	d.engine, err = xds.New(xds.Config[string]{
		Types: []xds.Type[string]{{URL: secretType, Source: d}}, Admit: admitEnvoy, Limits: xds.Limits{RequireNode: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.server, d.served = grpc.NewServer(grpc.Creds(d.creds)), make(chan struct{})
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(d.server, d)
	go func() { defer close(d.served); d.server.Serve(listener) }()
}

// stop ends it as a crash does.
func (d *discovery) stop() {
	d.server.Stop()
	d.engine.Close(nil)
	<-d.served
}

func admitEnvoy(ctx context.Context) (string, error) {
	p, _ := peer.FromContext(ctx)
	uris := p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].URIs
	if len(uris) != 1 || uris[0].String() != envoyID {
		return "", status.Error(codes.Unauthenticated, "not the gateway")
	}
	return envoyID, nil
}

func (d *discovery) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return d.engine.StreamDelta(stream, "")
}

func (d *discovery) Peek(_, name string) (*xds.Resource, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if resource := d.secrets[name]; resource != nil {
		return resource, nil
	}
	return nil, xds.ErrUnknown
}

func (d *discovery) Watch(_, name string, notify func(string)) (func(), error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next++
	id := d.next
	d.notify[id] = func() { notify(name) }
	return func() { d.mu.Lock(); delete(d.notify, id); d.mu.Unlock() }, nil
}

// put changes a secret.
func (d *discovery) put(t *testing.T, s *tlsv3.Secret) {
	t.Helper()
	body, err := anypb.New(s)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.secrets[s.Name] = &xds.Resource{Name: s.Name, Version: rand.Text(), Body: body}
	var all []func()
	for _, notify := range d.notify {
		all = append(all, notify)
	}
	d.mu.Unlock()
	for _, notify := range all {
		notify()
	}
}

// authority is a CA in memory.
type authority struct{ *certtest.Pair }

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	return newAuthorityIn(t, t.TempDir(), name)
}

// newAuthorityIn has its certificate and key in dir, as the file provider reads them.
func newAuthorityIn(t *testing.T, dir, name string) *authority {
	t.Helper()
	cert := writeCA(t, dir, name)
	pair, err := tls.LoadX509KeyPair(dir+"/ca-cert.pem", dir+"/ca-key.pem")
	if err != nil {
		t.Fatal(err)
	}
	return &authority{&certtest.Pair{Cert: cert, Key: pair.PrivateKey.(*ecdsa.PrivateKey)}}
}

// leaf returns the chain and key of a certificate with these names.
func (a *authority) leaf(t *testing.T, template *x509.Certificate) (chain, key []byte) {
	t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	leaf := a.Issue(t, template)
	return leaf.PEM(), leaf.KeyPEM(t)
}

// secret returns a key pair for a SPIFFE ID of the trust domain, as Envoy takes it.
func (a *authority) secret(t *testing.T, name, path string) *tlsv3.Secret {
	t.Helper()
	chain, key := a.leaf(t, &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: trustDomain, Path: path}}})
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inlineBytes(chain), PrivateKey: inlineBytes(key),
	}}}
}

func inlineBytes(text []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: text}}
}
