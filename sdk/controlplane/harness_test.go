package controlplane_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	sotwv3 "github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/controlplane"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leaf is a key pair of that version under the root of that version.
func leaf(name, version string) *secret.Item {
	return &secret.Item{Name: name, Kind: secret.KeyPair, Version: version, Chain: []byte(version), Key: []byte("key"), RootFingerprint: version}
}

func roots(version string) *secret.Item {
	return &secret.Item{Name: "ROOTCA", Kind: secret.TrustBundle, Version: version, Roots: []byte(version), RootFingerprints: []string{version}}
}

// dialect is one of go-control-plane's three stream servers.
type dialect string

const (
	sotw    dialect = "state of the world"
	ordered dialect = "state of the world, ordered"
	delta   dialect = "delta"
)

// byEachDialect runs a test against each server, in time that the test moves.
func byEachDialect(t *testing.T, test func(t *testing.T, d dialect)) {
	t.Helper()
	for _, d := range []dialect{sotw, ordered, delta} {
		t.Run(string(d), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, d) })
		})
	}
}

func newCache(t testing.TB, source secret.Source) *controlplane.Cache {
	t.Helper()
	c, err := controlplane.New(controlplane.Config{Secrets: source, Caller: byNode})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func byNode(node *corev3.Node) (secret.Caller, error) { return secret.Caller{ID: node.GetId()}, nil }

// pipe is a gRPC stream in memory. What is sent waits until it is read.
type pipe[Q, R any] struct {
	grpc.ServerStream
	ctx context.Context
	in  chan Q
	out chan R
}

func newPipe[Q, R any](ctx context.Context) *pipe[Q, R] {
	return &pipe[Q, R]{ctx: ctx, in: make(chan Q, 64), out: make(chan R)}
}

func (p *pipe[Q, R]) Context() context.Context { return p.ctx }

func (p *pipe[Q, R]) Recv() (q Q, err error) {
	select {
	case q = <-p.in:
		return q, nil
	case <-p.ctx.Done():
		return q, p.ctx.Err()
	}
}

func (p *pipe[Q, R]) Send(r R) error {
	select {
	case p.out <- r:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// answer is a response of either dialect.
type answer struct {
	got            map[string]string // the versions by name
	removed        []string
	version, nonce string
}

// client is one stream to one of the servers.
type client struct {
	t     testing.TB
	delta *pipe[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse]
	sotw  *pipe[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]
	node  *corev3.Node // of the next request
	names map[string]bool
	last  answer
	ended chan error
	hang  context.CancelFunc
}

func open(t testing.TB, d dialect, c *controlplane.Cache) *client {
	t.Helper()
	ctx, hang := context.WithCancel(context.Background())
	cl := &client{t: t, node: &corev3.Node{Id: "test"}, names: map[string]bool{}, ended: make(chan error, 1), hang: hang}
	serve := func() error { return deltav3.NewServer(ctx, c, nil).DeltaStreamHandler(cl.delta, "") }
	switch d {
	case delta:
		cl.delta = newPipe[*discoveryv3.DeltaDiscoveryRequest, *discoveryv3.DeltaDiscoveryResponse](ctx)
	default:
		cl.sotw = newPipe[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse](ctx)
		serve = func() error { return sotwv3.NewServer(ctx, c, nil).StreamHandler(cl.sotw, "") }
		if d == ordered {
			serve = func() error {
				return sotwv3.NewServer(ctx, c, nil, sotwv3.WithOrderedADS()).StreamHandler(cl.sotw, "")
			}
		}
	}
	go func() { cl.ended <- serve(); hang() }()
	return cl
}

// close hangs up and waits until the server's handler has returned.
func (c *client) close() {
	c.hang()
	<-c.ended
}

func (c *client) ask(names ...string) { c.t.Helper(); c.subscribe(names, nil, nil) }

func (c *client) drop(names ...string) { c.t.Helper(); c.subscribe(nil, names, nil) }

// subscribe takes and drops names, in one request; it is done when the server has it.
func (c *client) subscribe(take, drop []string, brought map[string]string) {
	c.t.Helper()
	defer synctest.Wait()
	for _, name := range take {
		c.names[name] = true
	}
	for _, name := range drop {
		delete(c.names, name)
	}
	if c.delta != nil {
		c.sendDelta(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: take, ResourceNamesUnsubscribe: drop, InitialResourceVersions: brought})
		return
	}
	c.sendSotw(&discoveryv3.DiscoveryRequest{})
}

// ack accepts the last answer; it is done when the server has it.
func (c *client) ack() { c.t.Helper(); c.reply(nil); synctest.Wait() }

func (c *client) nack() {
	c.t.Helper()
	c.reply(&rpcstatus.Status{Code: 3, Message: "no"})
	synctest.Wait()
}

func (c *client) reply(bad *rpcstatus.Status) {
	c.t.Helper()
	if c.delta != nil {
		c.sendDelta(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: c.last.nonce, ErrorDetail: bad})
		return
	}
	c.sendSotw(&discoveryv3.DiscoveryRequest{ErrorDetail: bad})
}

func (c *client) sendDelta(req *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	req.TypeUrl, req.Node = controlplane.TypeURL, c.node
	c.node = nil
	c.delta.in <- req
}

func (c *client) sendSotw(req *discoveryv3.DiscoveryRequest) {
	c.t.Helper()
	req.TypeUrl, req.Node, req.ResponseNonce, req.VersionInfo = controlplane.TypeURL, c.node, c.last.nonce, c.last.version
	c.node = nil
	for name := range c.names {
		req.ResourceNames = append(req.ResourceNames, name)
	}
	c.sotw.in <- req
}

// poll returns the next answer, if there is one now.
func (c *client) poll() (answer, bool) {
	c.t.Helper()
	synctest.Wait()
	if c.delta != nil {
		select {
		case r := <-c.delta.out:
			c.last = answer{got: map[string]string{}, removed: r.RemovedResources, version: r.SystemVersionInfo, nonce: r.Nonce}
			for _, res := range r.Resources {
				name, version := content(c.t, res.Resource)
				if c.last.got[name] = version; version != res.Version {
					c.t.Fatalf("%s has version %q, its content %q", name, res.Version, version)
				}
			}
			return c.last, true
		default:
			return answer{}, false
		}
	}
	select {
	case r := <-c.sotw.out:
		c.last = answer{got: map[string]string{}, version: r.VersionInfo, nonce: r.Nonce}
		for _, res := range r.Resources {
			name, version := content(c.t, res)
			c.last.got[name] = version
		}
		return c.last, true
	default:
		return answer{}, false
	}
}

// get returns the next answer; it has exactly those names.
func (c *client) get(names ...string) answer {
	c.t.Helper()
	a, ok := c.poll()
	if !ok {
		c.t.Fatalf("no answer; want %q", names)
	}
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	have := map[string]bool{}
	for name := range a.got {
		have[name] = true
	}
	if !maps.Equal(want, have) {
		c.t.Fatalf("the answer has %v, want %q", a.got, names)
	}
	return a
}

func (c *client) silent() {
	c.t.Helper()
	if a, ok := c.poll(); ok {
		c.t.Fatalf("an answer came: %v, removed %q", a.got, a.removed)
	}
}

// content returns the name and version of a secret, which its bytes are here.
func content(t testing.TB, body *anypb.Any) (name, version string) {
	t.Helper()
	var s tlsv3.Secret
	if err := body.UnmarshalTo(&s); err != nil {
		t.Fatal(err)
	}
	bytes := s.GetTlsCertificate().GetCertificateChain().GetInlineBytes()
	if bytes == nil {
		bytes = s.GetValidationContext().GetTrustedCa().GetInlineBytes()
	}
	return s.Name, string(bytes)
}
