package discovery_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/xds"
)

func TestEachServiceServesItsDialect(t *testing.T) {
	node := &corev3.Node{Id: "node"}
	sotw := func(s grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse], err error) (string, func() error, error) {
		if err = errors.Join(err, s.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: secretURL, ResourceNames: []string{"a"}})); err != nil {
			return "", nil, err
		}
		got, err := s.Recv()
		return got.GetVersionInfo(), func() error { _, err := s.Recv(); return err }, err
	}
	delta := func(s grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse], err error) (string, func() error, error) {
		if err = errors.Join(err, s.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: secretURL, ResourceNamesSubscribe: []string{"a"}})); err != nil {
			return "", nil, err
		}
		got, err := s.Recv()
		return got.GetSystemVersionInfo(), func() error { _, err := s.Recv(); return err }, err
	}
	for service, call := range map[string]func(context.Context, *grpc.ClientConn) (string, func() error, error){
		"ADS": func(ctx context.Context, conn *grpc.ClientConn) (string, func() error, error) {
			return sotw(discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx))
		},
		"ADS delta": func(ctx context.Context, conn *grpc.ClientConn) (string, func() error, error) {
			return delta(discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx))
		},
		"SDS": func(ctx context.Context, conn *grpc.ClientConn) (string, func() error, error) {
			return sotw(secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(ctx))
		},
		"SDS delta": func(ctx context.Context, conn *grpc.ClientConn) (string, func() error, error) {
			return delta(secretv3.NewSecretDiscoveryServiceClient(conn).DeltaSecrets(ctx))
		},
	} {
		inBubble(t, nil, func(t *testing.T, p *place) {
			conn := p.dial(p.root.Leaf(t, 10*time.Minute, web))
			defer conn.Close()
			version, wait, err := call(t.Context(), conn)
			if err != nil || version != "1" {
				t.Fatalf("%s: version %q, %v", service, version, err)
			}
			synctest.Wait()
			if got := p.server.Status().Streams[0]; got.Service != service || got.Node != "node" || got.Types[0].Sent != "1" {
				t.Errorf("%s: shown is %+v", service, got)
			}
			if err := wait(); status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s: it ended with %v", service, err)
			}
		})
	}
}

func TestServerWithoutSecretTypeHasNoSecretService(t *testing.T) {
	inBubble(t, func(p *place, c *discovery.Config) { c.Types = c.Types[:1] }, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, time.Hour, web))
		defer conn.Close()
		_, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{})
		if status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
	})
}

// never is a memorySource whose texts are not ready.
type never struct{ *memorySource }

func (never) Peek(*discovery.Caller, string) (*xds.Resource, error) { return nil, xds.ErrNotReady }

// A secret that is never there: the fetch waits, and not for ever.
func TestWaitingFetchEndsWithItsCredential(t *testing.T) {
	inBubble(t, func(_ *place, c *discovery.Config) { c.Types[1].Source = never{newMemorySource()} }, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 10*time.Minute, web))
		defer conn.Close()
		began := time.Now()
		_, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{
			Node: &corev3.Node{Id: "node"}, ResourceNames: []string{"a"},
		})
		if d := time.Since(began).Round(time.Minute); status.Code(err) != codes.Unauthenticated || d != 10*time.Minute {
			t.Errorf("after %s: %v", d, err)
		}
	})
}

// deaf is a connection that reads no more once it is shut.
type deaf struct {
	net.Conn
	shut *atomic.Bool
	gone chan struct{}
}

func (d deaf) Read(b []byte) (int, error) {
	n, err := d.Conn.Read(b)
	if d.shut.Load() {
		<-d.gone
	}
	return n, err
}

func TestSlowReaderDoesNotDelayShutdown(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		of := deaf{shut: &atomic.Bool{}, gone: make(chan struct{})}
		conn := p.dial(p.root.Leaf(t, time.Hour, web), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := p.tls.DialContext(ctx)
			return deaf{conn, of.shut, of.gone}, err
		}))
		defer conn.Close()
		defer close(of.gone)
		c := open(t, conn)
		defer c.hang()
		c.ask(thingURL, "a")
		c.gets("1")
		of.shut.Store(true)
		p.source.put("a", strings.Repeat("x", 50_000)) // more than fits on the way
		synctest.Wait()
		began := time.Now()
		p.down()
		p.over <- <-p.over // the bubble waits for it again
		if d := time.Since(began); d > 15*time.Second {
			t.Errorf("it has taken %s", d)
		}
	})
}

func TestFailingListenerEndsServer(t *testing.T) {
	p := newPlace(t, nil)
	p.plain.Close()
	if err := <-p.over; !says(err, "discovery: serve bufconn: ") {
		t.Error(err)
	}
	p.down()
	if _, err := p.tls.DialContext(t.Context()); err == nil {
		t.Error("the other listener is still open")
	}
	if err := p.server.Run(t.Context(), discovery.Listeners{TLS: new(net.TCPListener)}); !says(err, "Run called twice") {
		t.Error(err)
	}
}
