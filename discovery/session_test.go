package discovery

import (
	"context"
	"maps"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/test/polling"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// Between its admission and the engine's word for it a session can be ended by the
// clock, which the engine does not see.
func TestEndedSessionIsNotServed(t *testing.T) {
	server, err := New(Config{Authenticator: authn.Ordered{}, Types: []Type{{URL: secretURL, Source: nothing{}}}})
	if err != nil {
		t.Fatal(err)
	}
	of := &session{identity: authn.Identity{SPIFFEID: "spiffe://example.org/web", Expiry: time.Now().Add(-time.Second)}}
	of.caller = &Caller{Identity: of.identity, session: of}
	if err := server.sessions.enter(of); err != nil {
		t.Fatal(err)
	}
	defer server.sessions.leave(of)
	ctx := context.WithValue(t.Context(), sessionKey{}, of)
	if caller, err := server.admit(ctx); err != nil || caller != of.caller {
		t.Fatalf("before: %v, %v", caller, err)
	}
	server.endDue()
	if _, err := server.admit(ctx); status.Code(err) != codes.Unauthenticated {
		t.Errorf("after: %v", err)
	}
	if _, err := server.admit(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stream without a session: %v", err)
	}
}

// silent is a stream without a request, and grpc's part of it, which sends its status.
type silent struct {
	xds.Stream[*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse]
	grpc.ServerTransportStream
	ctx   context.Context
	sends func()
}

func (s *silent) Context() context.Context { return s.ctx }

func (s *silent) Recv() (*discoveryv3.DiscoveryRequest, error) {
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

func (s *silent) WriteStatus(*status.Status) error { s.sends(); return nil }

func TestEndIsCountedBeforeItsClientSeesIt(t *testing.T) {
	asked := status.Error(codes.Unauthenticated, "as the test asks")
	for why, end := range map[string]func(*Server){
		"credential-expired": func(s *Server) { s.endDue() },
		"asked":              func(s *Server) { s.End(func(authn.Identity) bool { return true }, asked) },
		"roots-changed":      func(s *Server) { s.Reauthorize("example.org") },
	} {
		t.Run(why, func(t *testing.T) {
			server, err := New(Config{Authenticator: authn.Ordered{}, Types: []Type{{URL: secretURL, Source: nothing{}}}})
			if err != nil {
				t.Fatal(err)
			}
			of := &session{identity: authn.Identity{Kind: authn.ByCertificate, SPIFFEID: "spiffe://example.org/web", Expiry: time.Now().Add(-time.Second)}}
			of.caller = &Caller{Identity: of.identity, session: of}
			if err := server.sessions.enter(of); err != nil {
				t.Fatal(err)
			}
			ctx, over := context.WithCancel(context.WithValue(t.Context(), sessionKey{}, of))
			counted := uint64(0)
			s := &silent{sends: func() {
				server.metrics.count(func(m *Metrics) { counted = m.Ended[why] })
				over()
			}}
			s.ctx = grpc.NewContextWithServerTransportStream(ctx, s)
			ended := make(chan error)
			go func() { ended <- server.engine.Stream(s, secretURL) }()
			polling.Until(t, 2*time.Minute, "the stream is open", func() bool { return server.engine.Streams() == 1 })
			end(server)
			if err := <-ended; status.Code(err) != codes.Unauthenticated || counted != 1 {
				t.Errorf("it ends with %v, and %d ends are counted then", err, counted)
			}
		})
	}
}

// The engine ends a session before its handler returns, perhaps while its first request is
// being handled.
func TestEndedSessionCountsNowhere(t *testing.T) {
	server, err := New(Config{Authenticator: authn.Ordered{}, Types: []Type{{URL: secretURL, Source: nothing{}}}})
	if err != nil {
		t.Fatal(err)
	}
	r := server.sessions
	first, second := &session{caller: &Caller{Cluster: "east"}}, &session{caller: &Caller{Cluster: "east"}}
	for _, s := range []*session{first, second} {
		if err := r.enter(s); err != nil {
			t.Fatal(err)
		}
	}
	server.ended(context.WithValue(t.Context(), sessionKey{}, first))
	if err := r.settle(first, "west"); err != nil {
		t.Error(err)
	}
	r.leave(first)
	if want := map[holder]int{{cluster: "east"}: 1}; !maps.Equal(r.holders, want) || len(r.open) != 1 {
		t.Errorf("%v hold %d sessions, want %v and 1", r.holders, len(r.open), want)
	}
	r.leave(second)
	if len(r.holders)+len(r.open)+len(r.deadlines) != 0 {
		t.Errorf("%v hold %d sessions", r.holders, len(r.open))
	}
}

func TestChangeIsMeasuredFromFirstNotice(t *testing.T) {
	var p progress
	p.change()
	began := p.changed
	p.change()
	p.look()
	p.look() // at another name of the same push
	if p.change(); p.looked != began {
		t.Error("the first notice is forgotten")
	}
	if _, ok := p.push("1"); !ok {
		t.Error("the push is not measured")
	}
	if _, ok := p.ack("1"); !ok {
		t.Error("the acknowledgement is not measured")
	}
	if _, ok := p.ack("1"); ok {
		t.Error("it is measured twice")
	}
	p.look()
	if _, ok := p.push("2"); !ok {
		t.Error("what changed while the first was under way is not measured")
	}
}
