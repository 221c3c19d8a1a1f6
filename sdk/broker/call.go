package broker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/exp/proto/spiffe/broker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/sdk/internal/workload"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// call is a stream or call of a broker. The goroutine of its handler owns it.
type call struct {
	*workload.Call
	server    *Server
	reference *anypb.Any
	account   *account // of its broker, once that is known
}

// serve has the Workload API answer a call as the workload of a reference, in a context that ends with
// the workload. The caller is asked for once the header was checked.
func (s *Server) serve(ctx context.Context, reference *broker.WorkloadReference, answer func(context.Context, *call) error) error {
	c := &call{server: s, reference: reference.GetReference()}
	over, err := workload.Serve(ctx, c.admit, func(ctx context.Context, one *workload.Call) error {
		c.Call = one
		return answer(ctx, c)
	})
	switch {
	case over:
		s.observe(Ended)
	case !c.Admitted() && err != nil:
		s.observe(outcomeOf(err))
	}
	return err
}

// admit makes a call one of its workload, or returns the status that refuses it.
func (c *call) admit(ctx context.Context, _ *workload.Call) error {
	err := c.resolve(ctx)
	if err != nil {
		err = statusOf(ctx, err)
	}
	c.server.observe(outcomeOf(err))
	return err
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
	c.server.log.Info("a broker gets the secrets of a workload", "broker", a.id, "workload", c.Workload().Name, "spiffe_id", c.Workload().SPIFFEID)
	return nil
}

func (c *call) hold(ctx context.Context, a *account) error {
	leave, err := a.enter(c)
	if err != nil {
		return err
	}
	c.Defer(leave)
	if err := c.look(ctx, a); err != nil {
		return err
	}
	c.account = a
	if err := c.entitled(); err != nil {
		return err
	}
	if err := a.spend(c.Workload().SPIFFEID, time.Now()); err != nil {
		return err
	}
	return c.join(a)
}

// entitled returns an error if the workload is this agent, or a broker with types of references that
// this broker may not use: with the certificate, it could.
func (c *call) entitled() error {
	w := c.Workload()
	if w.SPIFFEID == c.server.own {
		return Refuse(WorkloadNotEntitled, "%s is this agent", w.Name)
	}
	if other := c.server.account(w.SPIFFEID); other != nil && other.exceeds(c.account) {
		return Refuse(WorkloadNotEntitled, "%s is a broker that may use other types of references", w.Name)
	}
	return nil
}

// look finds the workload in its turn.
func (c *call) look(ctx context.Context, a *account) error {
	resolver, err := c.server.resolverOf(a, c.reference)
	if err != nil {
		return err
	}
	key := fingerprintOf(c.reference)
	leave, err := a.wait(ctx, key)
	if err != nil {
		return err
	}
	defer leave()
	if err := a.begin(c.kind(), key, searchRate(resolver), time.Now()); err != nil {
		return err
	}
	w, err := resolver.Resolve(ctx, c.reference, c.End)
	if err != nil {
		if outcomeOf(err) == NotFound {
			a.miss(c.kind(), key, time.Now())
		}
		return err
	}
	c.Hold(workload.Workload(w))
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
	free, err := a.take(Workload(c.Workload()))
	if err != nil {
		return err
	}
	c.Defer(free)
	return c.Join(func(id string) (secret.Caller, error) { return c.server.sessions.JoinAs(secret.Caller{}, id) }, c.server.sessions.Leave)
}

// check returns why nothing more may be sent, or nil.
func (c *call) check() error {
	err := c.Check()
	if err == nil {
		err = c.entitled()
	}
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
