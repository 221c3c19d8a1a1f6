//go:build e2e && linux

package program

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/kubernetes/secrets"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// answer is what either protocol has sent: resources, and the names that are not to be had.
type answer struct {
	resources []*anypb.Any
	removed   []string
}

// dialect is one of the two protocols.
type dialect interface {
	subscribe(node *core.Node, names []string) error
	receive() (answer, error)
}

// dialects open them.
var dialects = map[string]func(context.Context, discoveryv3.AggregatedDiscoveryServiceClient) (dialect, error){
	"state of the world": func(ctx context.Context, c discoveryv3.AggregatedDiscoveryServiceClient) (dialect, error) {
		stream, err := c.StreamAggregatedResources(ctx)
		return &worlds{stream: stream}, err
	},
	"delta": func(ctx context.Context, c discoveryv3.AggregatedDiscoveryServiceClient) (dialect, error) {
		stream, err := c.DeltaAggregatedResources(ctx)
		return &deltas{stream: stream}, err
	},
}

type worlds struct {
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient

	mu    sync.Mutex // of what follows, and of sending
	names []string
	last  discoveryv3.DiscoveryResponse
}

func (w *worlds) subscribe(node *core.Node, names []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = append(w.names, names...)
	return w.send(node)
}

func (w *worlds) send(node *core.Node) error {
	return w.stream.Send(&discoveryv3.DiscoveryRequest{
		Node: node, TypeUrl: secrets.TypeURL, ResourceNames: w.names, VersionInfo: w.last.GetVersionInfo(), ResponseNonce: w.last.GetNonce(),
	})
}

func (w *worlds) receive() (answer, error) {
	response, err := w.stream.Recv()
	if err != nil {
		return answer{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last.VersionInfo, w.last.Nonce = response.GetVersionInfo(), response.GetNonce()
	return answer{resources: response.GetResources()}, w.send(nil)
}

type deltas struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	mu     sync.Mutex // of sending
}

func (d *deltas) subscribe(node *core.Node, names []string) error {
	return d.send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: secrets.TypeURL, ResourceNamesSubscribe: names})
}

func (d *deltas) send(request *discoveryv3.DeltaDiscoveryRequest) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stream.Send(request)
}

func (d *deltas) receive() (answer, error) {
	response, err := d.stream.Recv()
	if err != nil {
		return answer{}, err
	}
	a := answer{removed: response.GetRemovedResources()}
	for _, r := range response.GetResources() {
		a.resources = append(a.resources, r.GetResource())
	}
	return a, d.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: secrets.TypeURL, ResponseNonce: response.GetNonce()})
}

// visitor is who comes, and what it says of itself.
type visitor struct {
	tls            *tls.Config
	token, cluster string // in the RPC's metadata
	node           map[string]any
}

// client is a stream that keeps what it is sent and acknowledges it.
type client struct {
	dialect

	mu   sync.Mutex
	has  map[string]string // by name: see told
	came []string          // names in their order, those that were removed with a minus
	err  error             // the stream's end
}

// comes opens a stream and asks for secrets; it ends with the test.
func (w *world) comes(t *testing.T, v visitor, protocol string, names ...string) *client {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+w.tls(t), grpc.WithTransportCredentials(credentials.NewTLS(v.tls)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	if v.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+v.token)
	}
	if v.cluster != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "clusterid", v.cluster)
	}
	c := &client{has: map[string]string{}}
	var reading sync.WaitGroup
	t.Cleanup(func() { cancel(); reading.Wait(); _ = conn.Close() })
	if c.dialect, err = dialects[protocol](ctx, discoveryv3.NewAggregatedDiscoveryServiceClient(conn)); err != nil {
		c.err = err
		return c
	}
	said, err := structpb.NewStruct(v.node)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.subscribe(&core.Node{Id: "proxy~1", Metadata: said}, names) // receive says why
	reading.Go(func() { c.read(t) })
	return c
}

func (c *client) read(t *testing.T) {
	for {
		a, err := c.receive()
		c.mu.Lock()
		for _, body := range a.resources {
			name, what := told(t, body)
			c.has[name], c.came = what, append(c.came, name)
		}
		for _, name := range a.removed {
			c.has[name], c.came = "-", append(c.came, "-"+name)
		}
		c.err = err
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// told is a secret's name, and what it is in words: the common name after "key" or "CA".
func told(t *testing.T, body *anypb.Any) (name, what string) {
	var s tlsv3.Secret
	if err := body.UnmarshalTo(&s); err != nil || s.ValidateAll() != nil {
		t.Errorf("%v, %v", err, s.ValidateAll())
	}
	if ca := s.GetValidationContext(); ca != nil {
		if strings.Contains(string(body.GetValue()), "PRIVATE KEY") {
			t.Errorf("%s: a key is in a CA", s.GetName())
		}
		return s.GetName(), "CA " + common(ca.GetTrustedCa()) + with(ca.GetCrl(), " +CRL")
	}
	pair := s.GetTlsCertificate()
	if _, err := tls.X509KeyPair(pair.GetCertificateChain().GetInlineBytes(), pair.GetPrivateKey().GetInlineBytes()); err != nil {
		t.Errorf("%s: the key is not the certificate's", s.GetName())
	}
	return s.GetName(), "key " + common(pair.GetCertificateChain()) + with(pair.GetOcspStaple(), " +staple")
}

func common(text *core.DataSource) string {
	certs, err := pki.ParseCertificates(text.GetInlineBytes())
	if err != nil {
		return err.Error()
	}
	return certs[0].Subject.CommonName
}

func with(part *core.DataSource, words string) string {
	if len(part.GetInlineBytes()) == 0 {
		return ""
	}
	return words
}

// of returns what the client has of a name: words of told, "-" for what it was told that it
// does not have, empty where nothing came.
func (c *client) of(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has[name]
}

// gets waits until the client has that of a name.
func (c *client) gets(t *testing.T, name, what string, w *world) {
	t.Helper()
	eventually(t, func() bool { return c.of(name) == what }, name+" is "+what, lastly{c, name, w.log})
}

// lastly is what a test that waits in vain is told.
type lastly struct {
	c    *client
	name string
	log  fmt.Stringer
}

func (l lastly) String() string { return l.name + " is " + l.c.of(l.name) + "\n" + l.log.String() }

// ends waits for the end of the stream.
func (c *client) ends(t *testing.T, w *world) (err error) {
	t.Helper()
	eventually(t, func() bool { c.mu.Lock(); defer c.mu.Unlock(); err = c.err; return err != nil }, "the stream ends", w.log)
	return err
}

// since are the names that came after the first n messages, sorted.
func (c *client) since(n int) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.came[n:]))
}

func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.came)
}
