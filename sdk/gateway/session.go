package gateway

import (
	"context"
	"errors"
	"net"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxAnswer limits one message from the service, in bytes.
	maxAnswer = 8 << 20
	// These keepalives detect a service that vanished. By default a gRPC server
	// disconnects clients that ping more often than every 5 minutes; istiod and
	// countersign-discovery ping their clients themselves.
	pingEvery, pingTimeout = 5*time.Minute + 10*time.Second, 10 * time.Second
)

// errCredential ends a stream whose credential has expired: the next one uses a new one.
var errCredential = errors.New("the credential of this stream has ended")

type adsStream = grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

// session is one stream to the service. One goroutine owns it.
type session struct {
	*Client
	stream     adsStream
	end        func() // ends the stream
	with       *credential
	subscribed map[string]uint64 // the watch id a name was requested for
	bare       bool              // nothing was held at the start, so silence is not an answer
	answered   bool
}

// session opens a stream and keeps it until it breaks, its credential expires or no
// name is wanted any more; nil means that it was ended on purpose.
func (c *Client) session(ctx context.Context) error {
	with, err := c.credential(ctx)
	if err != nil {
		return err
	}
	conn, err := c.connect(with)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(c.outgoing(ctx))
	defer cancel()
	if !with.until.IsZero() {
		// Cancelling the context also ends a Send blocked on a service that does not read.
		stop := time.AfterFunc(time.Until(with.until), cancel)
		defer stop.Stop()
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		s := &session{Client: c, stream: stream, end: cancel, with: with, subscribed: map[string]uint64{}}
		err = s.run(ctx)
	}
	if !with.until.IsZero() && !time.Now().Before(with.until) {
		c.cfg.Log.Info(errCredential.Error(), "with", with.kind)
		return nil
	}
	if err == nil {
		return nil
	}
	return c.explain(err, with)
}

func (c *Client) connect(with *credential) (*grpc.ClientConn, error) {
	// The dialer resolves names; environment proxies do not apply to this connection.
	return grpc.NewClient("passthrough:///"+c.cfg.Address, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(with.config)), grpc.WithPerRPCCredentials(with),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.cfg.Dial(ctx, address) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)), grpc.WithMaxHeaderListSize(64<<10),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}))
}

func (c *Client) outgoing(ctx context.Context) context.Context {
	if c.cfg.Cluster == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "clusterid", c.cfg.Cluster)
}

// run sends wanted names to the service and stores its answers. It ends the stream
// before it returns.
func (s *session) run(ctx context.Context) error {
	answers, broken := make(chan *discoveryv3.DeltaDiscoveryResponse), make(chan error, 1)
	quiet := make(chan struct{})
	defer func() { s.end(); <-quiet }()
	go func() { defer close(quiet); broken <- s.receive(ctx, answers) }()
	if err := s.open(); err != nil {
		return s.reason(broken, err)
	}
	sweep, silent := time.NewTicker(max(s.cfg.Linger/2, time.Second)), time.NewTimer(s.cfg.FirstAnswer)
	defer sweep.Stop()
	defer silent.Stop()
	for len(s.subscribed) > 0 {
		var err error
		select {
		case answer := <-answers:
			err = s.take(answer)
		case <-s.wanted:
			err = s.subscribe()
		case now := <-sweep.C:
			s.sweep(now)
		case <-silent.C:
			err = s.silence()
		case err := <-broken:
			return err
		}
		if err != nil {
			return s.reason(broken, err)
		}
	}
	return nil
}

// silence interprets a service without any reply yet: nothing held has changed, or,
// if nothing is held, the service is stuck.
func (s *session) silence() error {
	switch {
	case s.answered:
		return nil
	case s.bare:
		return ca.Errorf(ca.Deadline, "no response for %s", s.cfg.FirstAnswer)
	}
	s.heard()
	return nil
}

// heard records that the service has replied.
func (s *session) heard() {
	if !s.answered {
		s.answered = true
		s.up(s.with)
	}
}

// reason returns why a stream broke: a failed Send does not contain it.
func (s *session) reason(broken <-chan error, err error) error {
	if _, ok := errors.AsType[*ca.Error](err); ok {
		return err
	}
	select {
	case err = <-broken:
	case <-time.After(time.Second):
	}
	return err
}

func (s *session) receive(ctx context.Context, answers chan<- *discoveryv3.DeltaDiscoveryResponse) error {
	pace := pacer{burst: 2*s.cfg.MaxNames + perSecond}
	for {
		answer, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if err := pace.wait(ctx, len(answer.GetResources())+len(answer.GetRemovedResources())); err != nil {
			return err
		}
		select {
		case answers <- answer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open sends the first request: the node, and all names with the versions held.
func (s *session) open() error {
	first := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, Node: s.node(), InitialResourceVersions: map[string]string{}}
	for name, w := range s.names() {
		first.ResourceNamesSubscribe = append(first.ResourceNamesSubscribe, name)
		s.subscribed[name] = w.id
		if w.version != "" {
			first.InitialResourceVersions[name] = w.version
		}
	}
	s.bare = len(first.InitialResourceVersions) == 0
	return s.send(first)
}

func (s *session) node() *corev3.Node {
	node := &corev3.Node{Id: s.cfg.NodeID}
	if s.cfg.Cluster != "" {
		node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"CLUSTER_ID": structpb.NewStringValue(s.cfg.Cluster)}}
	}
	return node
}

// subscribe sends newly wanted names and those no longer wanted.
func (s *session) subscribe() error {
	req, wanted := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}, s.names()
	for name, w := range wanted {
		// Requesting a name again makes the service resend it: it was dropped and is
		// now watched again.
		if s.subscribed[name] != w.id {
			s.subscribed[name] = w.id
			req.ResourceNamesSubscribe = append(req.ResourceNamesSubscribe, name)
		}
	}
	for name := range s.subscribed {
		if _, ok := wanted[name]; !ok {
			delete(s.subscribed, name)
			req.ResourceNamesUnsubscribe = append(req.ResourceNamesUnsubscribe, name)
		}
	}
	if len(req.ResourceNamesSubscribe)+len(req.ResourceNamesUnsubscribe) == 0 {
		return nil
	}
	return s.send(req)
}

// send ends the stream if the service does not read: gRPC would wait forever.
func (s *session) send(req *discoveryv3.DeltaDiscoveryRequest) error {
	stuck := time.AfterFunc(s.cfg.FirstAnswer, s.end)
	err := s.stream.Send(req)
	if !stuck.Stop() {
		return ca.Errorf(ca.Deadline, "it has read nothing for %s", s.cfg.FirstAnswer)
	}
	return err
}
