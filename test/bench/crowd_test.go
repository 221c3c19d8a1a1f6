package bench

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/sds"
)

// opening is how many streams are opened at once: enough for two cores, few
// enough for the socket's queue.
const opening = 128

// crowd is many streams, each of which acknowledges what it gets.
type crowd struct {
	socket string
	shared *grpc.ClientConn // nil: each stream has a connection of its own
	bare   bool             // streams of gRPC's own health service, for comparison
	spiffe bool             // streams of the SPIFFE Workload API
	ctx    context.Context
	leave  context.CancelFunc
	gone   sync.WaitGroup
	*tally
}

func newCrowd(socket string, kind crowding) (*crowd, error) {
	c := &crowd{socket: socket, bare: kind.bare, spiffe: kind.spiffe, tally: newTally()}
	if c.spiffe {
		c.socket += ".spiffe"
	}
	c.ctx, c.leave = context.WithCancel(context.Background())
	var err error
	if kind.shared {
		c.shared, err = c.connect()
	}
	return c, err
}

func (c *crowd) connect() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///streams", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.socket)
		}), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0))
}

// open opens n streams and returns when each has been answered, and how long that took.
func (c *crowd) open(n int) (time.Duration, error) {
	begin := time.Now()
	c.expect(n)
	var group errgroup.Group
	group.SetLimit(opening)
	for range n {
		group.Go(c.join)
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return last(c.until(begin))
}

// join opens one stream and returns when it has been answered once.
func (c *crowd) join() error {
	conn := c.shared
	if conn == nil {
		own, err := c.connect()
		if err != nil {
			return err
		}
		context.AfterFunc(c.ctx, func() { _ = own.Close() })
		conn = own
	}
	switch {
	case c.bare:
		return c.watchHealth(conn)
	case c.spiffe:
		return c.followSVIDs(conn)
	}
	stream, err := secretv3.NewSecretDiscoveryServiceClient(conn).StreamSecrets(c.ctx)
	if err != nil {
		return err
	}
	first := &discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: []string{"default"}, Node: &corev3.Node{Id: "bench"}}
	if err := errors.Join(stream.Send(first), c.take(stream)); err != nil {
		return err
	}
	c.gone.Go(func() {
		for c.take(stream) == nil {
			continue
		}
	})
	return nil
}

// watchHealth opens the least that a stream can be: one request, one answer.
func (c *crowd) watchHealth(conn *grpc.ClientConn) error {
	stream, err := healthv1.NewHealthClient(conn).Watch(c.ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	c.count()
	return nil
}

// followSVIDs opens a stream of the Workload API.
func (c *crowd) followSVIDs(conn *grpc.ClientConn) error {
	ctx := metadata.AppendToOutgoingContext(c.ctx, "workload.spiffe.io", "true")
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/SpiffeWorkloadAPI/FetchX509SVID")
	if err != nil {
		return err
	}
	next := func() error {
		err := stream.RecvMsg(&workloadv1.X509SVIDResponse{})
		if err == nil {
			c.count()
		}
		return err
	}
	if err := errors.Join(stream.SendMsg(&workloadv1.X509SVIDRequest{}), stream.CloseSend(), next()); err != nil {
		return err
	}
	c.gone.Go(func() {
		for next() == nil {
			continue
		}
	})
	return nil
}

// take gets one answer and acknowledges it.
func (c *crowd) take(stream secretv3.SecretDiscoveryService_StreamSecretsClient) error {
	answer, err := stream.Recv()
	if err != nil {
		return err
	}
	c.count()
	return stream.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: sds.TypeURL, ResourceNames: []string{"default"}, VersionInfo: answer.VersionInfo, ResponseNonce: answer.Nonce,
	})
}

// close ends all streams.
func (c *crowd) close() {
	c.leave()
	c.gone.Wait()
	if c.shared != nil {
		_ = c.shared.Close()
	}
}
