package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/internal/foreign"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxAnswer bounds one message of the service, in bytes.
	maxAnswer = 8 << 20
	// maxFaults of a refused answer are told.
	maxFaults = 5
	// A service that is gone without a word is noticed after these. A gRPC server ends the
	// connections of those who ping more often than every 5 minutes, if it is not told to
	// be patient; istiod and countersign-discovery ping their clients by themselves.
	pingEvery, pingTimeout = 5*time.Minute + 10*time.Second, 10 * time.Second
)

// errCredential ends a stream whose credential has: the next one has another.
var errCredential = errors.New("the credential of this stream has ended")

type adsStream = grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]

// session is one stream to the service. One goroutine owns it.
type session struct {
	*Client
	stream     adsStream
	with       *credential
	subscribed map[string]bool
	bare       bool // nothing was held when it began, so that silence is no answer
	answered   bool
}

// session opens a stream and keeps it until it breaks, its credential ends or no name is
// wanted any more; nil means that it was ended on purpose.
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
		// With the context a Send ends, too, whose service reads nothing.
		stop := time.AfterFunc(time.Until(with.until), cancel)
		defer stop.Stop()
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		s := &session{Client: c, stream: stream, with: with, subscribed: map[string]bool{}}
		err = s.run(ctx, cancel)
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
	// The dialer resolves; a proxy of the environment is not for this connection.
	return grpc.NewClient("passthrough:///"+c.cfg.Address, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(with.config)), grpc.WithPerRPCCredentials(with),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.cfg.Dial(ctx, address) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithDisableServiceConfig())
}

func (c *Client) outgoing(ctx context.Context) context.Context {
	if c.cfg.Cluster == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "clusterid", c.cfg.Cluster)
}

// run moves what is wanted to the service and its answers to the shelf. When it returns it
// has ended the stream by cancel.
func (s *session) run(ctx context.Context, cancel func()) error {
	answers, broken := make(chan *discoveryv3.DeltaDiscoveryResponse), make(chan error, 1)
	quiet := make(chan struct{})
	defer func() { cancel(); <-quiet }()
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
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return s.reason(broken, err)
		}
	}
	return nil
}

// silence is what a service that has said nothing yet means by it: that nothing of what
// is held has changed, or, where there is nothing held, that it is stuck.
func (s *session) silence() error {
	switch {
	case s.answered:
		return nil
	case s.bare:
		return ca.Errorf(ca.Deadline, "it has told nothing for %s", s.cfg.FirstAnswer)
	}
	s.heard()
	return nil
}

// heard notes that the service is there.
func (s *session) heard() {
	if !s.answered {
		s.answered = true
		s.up(s.with)
	}
}

// reason returns why a stream broke: a Send that fails only says that it did.
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
	for {
		answer, err := s.stream.Recv()
		if err != nil {
			return err
		}
		select {
		case answers <- answer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open sends the first request: who this is, and all names with what is held of them.
func (s *session) open() error {
	first := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, Node: s.node(), InitialResourceVersions: map[string]string{}}
	for name, version := range s.names() {
		first.ResourceNamesSubscribe = append(first.ResourceNamesSubscribe, name)
		s.subscribed[name] = true
		if version != "" {
			first.InitialResourceVersions[name] = version
		}
	}
	slices.Sort(first.ResourceNamesSubscribe)
	s.bare = len(first.InitialResourceVersions) == 0
	return s.stream.Send(first)
}

func (s *session) node() *corev3.Node {
	node := &corev3.Node{Id: s.cfg.NodeID}
	if s.cfg.Cluster != "" {
		node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"CLUSTER_ID": structpb.NewStringValue(s.cfg.Cluster)}}
	}
	return node
}

// subscribe tells the service which names are wanted now and were not, or no longer are.
func (s *session) subscribe() error {
	req, wanted := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}, s.names()
	for name := range wanted {
		if !s.subscribed[name] {
			s.subscribed[name] = true
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
	return s.stream.Send(req)
}

// take puts what is good of an answer on the shelf, and acknowledges it, or refuses it with
// what is wrong: one bad secret costs the others nothing.
func (s *session) take(answer *discoveryv3.DeltaDiscoveryResponse) error {
	if answer.GetTypeUrl() != typeURL {
		return ca.Errorf(ca.Internal, "it sent the type %.256q, which was not asked for", answer.GetTypeUrl())
	}
	s.heard()
	var faults []string
	for _, resource := range answer.GetResources() {
		if err := s.place(resource); err != nil {
			faults = append(faults, err.Error())
		}
	}
	for _, name := range answer.GetRemovedResources() {
		if s.remove(name) {
			s.cfg.Observe(Removed)
			s.cfg.Log.Warn("the discovery service does not know a name, or not for this gateway", "name", foreign.Clean(name))
		}
	}
	return s.stream.Send(verdict(answer, faults))
}

// place puts one secret on the shelf; the error is for the service and says which and why.
func (s *session) place(resource *discoveryv3.Resource) error {
	name := resource.GetName()
	good, err := check(resource)
	news := false
	if err == nil {
		news, err = s.shelf.take(name, resource.GetVersion(), good)
	}
	switch {
	case err != nil:
		fault := foreign.Clean(err.Error())
		s.refuse(name, fault)
		s.cfg.Observe(Refused)
		s.cfg.Log.Error("a secret of the discovery service is refused, and what was held stays", "name", foreign.Clean(name), "error", fault)
		return fmt.Errorf("%s: %s", foreign.Clean(name), fault)
	case news:
		s.cfg.Observe(Taken)
		s.cfg.Log.Info("a secret of the discovery service is held", "name", name, "not_after", good.notAfter)
	}
	return nil
}

func verdict(answer *discoveryv3.DeltaDiscoveryResponse, faults []string) *discoveryv3.DeltaDiscoveryRequest {
	req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: answer.GetNonce()}
	if len(faults) > 0 {
		req.ErrorDetail = &rpcstatus.Status{
			Code: int32(codes.InvalidArgument), Message: strings.Join(faults[:min(len(faults), maxFaults)], "; "),
		}
	}
	return req
}
