package broker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// call is a stream or call of a broker. The goroutine of its handler owns it.
type call struct {
	server    *Server
	reference *anypb.Any
	over      context.CancelCauseFunc // ends it, with why

	admitted bool // or refused
	workload Workload
	caller   secret.Caller
	err      error
	ends     []func() // releases what it holds
}

// callKey is the context key of a *call.
type callKey struct{}

// serve has the Workload API answer a call as the workload of a reference. It does so in a context that
// ends with the workload, and asks [admit] for the caller once it has checked the header.
func (s *Server) serve(ctx context.Context, reference *broker.WorkloadReference, answer func(context.Context, *call) error) error {
	within, over := context.WithCancelCause(ctx)
	defer over(nil)
	c := &call{server: s, reference: reference.GetReference(), over: over}
	defer c.close()
	err := answer(context.WithValue(within, callKey{}, c), c)
	switch {
	case within.Err() != nil && ctx.Err() == nil:
		s.observe(Ended)
		return context.Cause(within)
	case !c.admitted && err != nil:
		s.observe(outcomeOf(err))
	}
	return err
}

func (c *call) close() {
	for _, end := range slices.Backward(c.ends) {
		end()
	}
}

// admit returns the workload of a call as a caller. The Workload API may ask more than once.
func admit(ctx context.Context) (secret.Caller, error) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return secret.Caller{}, status.Error(codes.Internal, "not a call of the Broker API")
	}
	if !c.admitted {
		c.admitted = true
		if c.err = c.resolve(ctx); c.err != nil {
			c.err = statusOf(ctx, c.err)
		}
		c.server.observe(outcomeOf(c.err))
	}
	return c.caller, c.err
}

// resolve finds and holds the workload, and joins its identity.
func (c *call) resolve(ctx context.Context) error {
	a, err := c.server.accountOf(ctx)
	if err != nil {
		return err
	}
	if err := c.hold(ctx, a); err != nil {
		c.server.refused(a, c.reference, err)
		return err
	}
	c.server.log.Info("a broker gets the secrets of a workload", "broker", a.id, "workload", c.workload.Name, "spiffe_id", c.workload.SPIFFEID)
	return nil
}

func (c *call) hold(ctx context.Context, a *account) error {
	leave, err := a.enter(c)
	if err != nil {
		return err
	}
	c.ends = append(c.ends, leave)
	if err := c.look(ctx, a); err != nil {
		return err
	}
	if c.workload.SPIFFEID == c.server.own {
		return Refuse(WorkloadNotEntitled, "%s is this agent", c.workload.Name)
	}
	if err := a.spend(c.workload.SPIFFEID, time.Now()); err != nil {
		return err
	}
	return c.join(a)
}

// look finds the workload in its turn.
func (c *call) look(ctx context.Context, a *account) error {
	resolver, err := c.server.resolverOf(a, c.reference)
	if err != nil {
		return err
	}
	leave, err := a.wait(ctx)
	if err != nil {
		return err
	}
	defer leave()
	key := fingerprintOf(c.reference)
	if err := a.begin(c.kind(), key, searchRate(resolver), time.Now()); err != nil {
		return err
	}
	if c.workload, err = resolver.Resolve(ctx, c.reference, c.over); err != nil {
		if outcomeOf(err) == NotFound {
			a.miss(c.kind(), key, time.Now())
		}
		return err
	}
	c.ends = append(c.ends, c.workload.Release)
	return nil
}

// searchRate returns how many references a second may miss.
func searchRate(r Resolver) float64 {
	if n, ok := r.(Numbered); ok {
		return max(1, float64(n.Numbers())/scanTime.Seconds())
	}
	return 1
}

// join occupies a stream's places.
func (c *call) join(a *account) error {
	free, err := a.take(c.workload)
	if err != nil {
		return err
	}
	c.ends = append(c.ends, free)
	if c.caller, err = c.server.sessions.JoinAs(secret.Caller{}, c.workload.SPIFFEID); err != nil {
		return err
	}
	c.ends = append(c.ends, func() { c.server.sessions.Leave(c.caller) })
	return nil
}

// check returns why nothing more may be sent, or nil.
func (c *call) check() error {
	err := c.workload.Check()
	if err != nil {
		return statusOf(context.Background(), err)
	}
	return nil
}

// accountOf returns the account of the broker that TLS has verified.
func (s *Server) accountOf(ctx context.Context) (*account, error) {
	if remote, ok := peer.FromContext(ctx); ok {
		if info, ok := remote.AuthInfo.(credentials.TLSInfo); ok && info.SPIFFEID != nil {
			if a := s.account(info.SPIFFEID.String()); a != nil {
				return a, nil
			}
		}
	}
	return nil, errUnlisted
}

// resolverOf returns who resolves a reference, or the status for the broker.
func (s *Server) resolverOf(a *account, reference *anypb.Any) (Resolver, error) {
	name := kindOf(reference)
	resolver := s.resolvers[name]
	switch {
	case reference.GetTypeUrl() == "":
		return nil, Refuse(ReferenceInvalid, "the workload reference is missing")
	case resolver == nil:
		return nil, Refuse(ReferenceInvalid, "unsupported type of workload reference %.128q; this agent resolves %s", reference.GetTypeUrl(), s.types())
	}
	return resolver, a.may(name)
}

func kindOf(reference *anypb.Any) Reference { return Reference(reference.MessageName()) }

// kind is the type of the call's reference.
func (c *call) kind() Reference { return kindOf(c.reference) }

func (s *Server) types() string {
	var names []string
	for name := range s.resolvers {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return strings.Join(names, " and ")
}

// relayed is a stream of the Workload API whose messages go to a stream of the Broker API.
type relayed[M any] struct {
	grpc.ServerStream
	ctx  context.Context
	call *call
	send func(*M) error
}

// Context ends with the workload.
func (r relayed[M]) Context() context.Context { return r.ctx }

// Send sends a message if the workload still has its identity.
func (r relayed[M]) Send(m *M) error {
	if err := r.call.check(); err != nil {
		return err
	}
	return r.send(m)
}
