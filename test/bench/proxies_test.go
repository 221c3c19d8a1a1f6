package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

const (
	secretURL  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	clusterURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	// proxyGroups have a secret each.
	proxyGroups = 100
)

// proxies are ADS streams over mutual TLS, each on a connection of its own, that
// acknowledge what they get. Those of a group have one service account.
type proxies struct {
	address string
	typ     string
	tls     []*tls.Config // by group
	ctx     context.Context
	leave   context.CancelFunc
	gone    sync.WaitGroup
	joined  int
	*tally
}

// opened is what a discoveryserver answers when it has opened.
type opened struct {
	Address string
	Roots   []byte
	Proxies []struct{ Chain, Key []byte }
}

func newProxies(s *server, typ string) (*proxies, error) {
	var at opened
	if err := s.ask("open", &at); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(at.Roots)
	p := &proxies{address: at.Address, typ: typ, tally: newTally()}
	for _, pair := range at.Proxies {
		certificate, err := tls.X509KeyPair(pair.Chain, pair.Key)
		if err != nil {
			return nil, err
		}
		p.tls = append(p.tls, &tls.Config{RootCAs: roots, ServerName: "discovery", Certificates: []tls.Certificate{certificate}})
	}
	p.ctx, p.leave = context.WithCancel(context.Background())
	return p, nil
}

// join opens n more, in groups by turns, and returns when each has been answered once.
func (p *proxies) join(n int) error {
	var group errgroup.Group
	group.SetLimit(opening)
	for range n {
		in := p.joined % len(p.tls)
		p.joined++
		group.Go(func() error { return p.open(in) })
	}
	return group.Wait()
}

func (p *proxies) open(group int) error {
	conn, err := grpc.NewClient("passthrough:///"+p.address, grpc.WithTransportCredentials(credentials.NewTLS(p.tls[group])),
		grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0))
	if err != nil {
		return err
	}
	context.AfterFunc(p.ctx, func() { _ = conn.Close() })
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(p.ctx)
	if err != nil {
		return err
	}
	var names []string
	if p.typ == secretURL {
		names = []string{fmt.Sprintf("kubernetes://group-%d", group), "kubernetes://shared"}
	}
	first := &discoveryv3.DiscoveryRequest{TypeUrl: p.typ, ResourceNames: names, Node: &corev3.Node{Id: "bench"}}
	if err := errors.Join(stream.Send(first), p.take(stream, names)); err != nil {
		return err
	}
	p.gone.Go(func() {
		for p.take(stream, names) == nil {
			continue
		}
	})
	return nil
}

// take gets an answer and acknowledges it. Secrets are counted one by one, complete
// answers as they are.
func (p *proxies) take(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient, names []string) error {
	answer, err := stream.Recv()
	if err != nil {
		return err
	}
	n := 1
	if p.typ == secretURL {
		n = len(answer.GetResources())
	}
	for range n {
		p.count()
	}
	return stream.Send(&discoveryv3.DiscoveryRequest{
		TypeUrl: p.typ, ResourceNames: names, VersionInfo: answer.GetVersionInfo(), ResponseNonce: answer.GetNonce(),
	})
}

// close ends all streams.
func (p *proxies) close() {
	p.leave()
	p.gone.Wait()
}
