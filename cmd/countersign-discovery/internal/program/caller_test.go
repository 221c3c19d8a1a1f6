package program

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// caller is how a client comes.
type caller struct {
	tls   *tls.Config // nil: plaintext
	token string
	from  string // its address on loopback, if set
}

type stream = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient

// open opens a stream and asks for these names of a type, or all of it.
func (c caller) open(t *testing.T, address, url string, names ...string) (stream, error) {
	t.Helper()
	return c.send(t, address, &discoveryv3.DiscoveryRequest{Node: &core.Node{Id: "gateway~1"}, TypeUrl: url, ResourceNames: names})
}

// send opens a stream with its first request.
func (c caller) send(t *testing.T, address string, first *discoveryv3.DiscoveryRequest) (stream, error) {
	t.Helper()
	creds := insecure.NewCredentials()
	if c.tls != nil {
		creds = credentials.NewTLS(c.tls)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds), grpc.WithContextDialer(c.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	if c.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+c.token)
	}
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	if err = s.Send(first); errors.Is(err, io.EOF) {
		err = nil // Recv says why
	}
	return s, err
}

func (c caller) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	if c.from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.from)}
	}
	return d.DialContext(ctx, "tcp", address)
}

// first returns the first answer to a caller.
func (c caller) first(t *testing.T, address, url string, names ...string) (*discoveryv3.DiscoveryResponse, error) {
	t.Helper()
	s, err := c.open(t, address, url, names...)
	if err != nil {
		return nil, err
	}
	return s.Recv()
}

// last takes answers until the stream ends, and returns why it did.
func last(s stream) error {
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
	}
}

// ask opens a stream and asks for all of a type.
func ask(t *testing.T, address string, cfg *tls.Config, url string) (stream, error) {
	t.Helper()
	return caller{tls: cfg}.open(t, address, url)
}

// metrics are those of a service.
func (p *program) metrics(t *testing.T) string {
	t.Helper()
	_, text := p.page(t, "/metrics")
	return text
}
