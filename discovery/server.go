package discovery

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/internal/strangers"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// look is the maximum interval between clock checks: timers do not notice a suspend or
// a clock jump.
const look = 30 * time.Second

// Server serves streams. Its methods are safe for concurrent use. Create one with
// [New].
type Server struct {
	cfg      Config
	urls     []string // type URLs in push order
	engine   *xds.Engine[*Caller]
	sessions *sessions
	metrics  *metrics
	said     limiter
	// What strangers may use, on both listeners together.
	connections, authenticating *strangers.Places
	unknown                     *strangers.Unknown

	round atomic.Uint64 // counts the calls of Reauthorize and End
	runs  atomic.Bool
}

// New returns a server, or an error if a setting is missing or invalid. It starts
// nothing.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	l, t := cfg.Limits, cfg.Times
	s := &Server{
		cfg: cfg, sessions: newSessions(cfg), connections: strangers.NewPlaces(l.Connections, l.ConnectionsOfAddress),
		authenticating: strangers.NewPlaces(l.Authentications, l.AuthenticationsOfAddress),
		unknown:        strangers.NewUnknown(l.Authentications, l.AuthenticationsOfAddress, t.Handshake+t.Authenticate),
	}
	types := slices.Clone(cfg.Types)
	slices.SortStableFunc(types, func(a, b Type) int { return cmp.Compare(rank(a.URL), rank(b.URL)) })
	for i, t := range types {
		s.urls = append(s.urls, t.URL)
		if t.Source != nil { // otherwise the engine reports what is missing
			types[i].Source = watch(t.Source, i)
		}
	}
	s.metrics = newMetrics(s.urls)
	s.engine, err = xds.New(xds.Config[*Caller]{
		Types: types, Admit: s.admit, Node: s.meet, Ended: s.ended, Observe: s.observe, Log: cfg.Log, Limits: cfg.Limits.Names,
	})
	return s, err
}

// order is the push order on an aggregated stream: a resource follows what it refers to
// (Envoy's xDS protocol, "Eventual consistency considerations").
var order = []string{
	"type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"type.googleapis.com/envoy.config.listener.v3.Listener",
	"type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	secretURL,
}

const secretURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

func rank(url string) int {
	if i := slices.Index(order, url); i >= 0 {
		return i
	}
	return len(order)
}

// Reauthorize ends the streams whose certificate is of the trust domain and no longer
// verifies, and returns how many. Call it after the domain's roots have changed: new
// streams are verified with the new roots.
func (s *Server) Reauthorize(trustDomain string) int {
	s.round.Add(1)
	return s.end("roots-changed", func(c *Caller) bool {
		return c.Identity.Kind == authn.ByCertificate && trustDomainOf(c.Identity) == trustDomain && !s.isKnown(c)
	}, status.Error(codes.Unauthenticated, "the roots changed, and the certificate no longer verifies"))
}

// isKnown reports whether the caller's certificate is valid now. If that cannot be
// determined, it stays valid.
func (s *Server) isKnown(c *Caller) bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Times.Authenticate)
	defer cancel()
	id, err := s.cfg.Authenticator.Authenticate(ctx, authn.Credential{Chain: c.session.chain})
	if err != nil {
		return errors.Is(err, authn.ErrUnavailable)
	}
	return id.Kind == c.Identity.Kind && id.SPIFFEID == c.Identity.SPIFFEID
}

// End ends the streams of matching identities with a status error and returns how many.
// Streams that open meanwhile are authenticated again, so update the authenticator
// first.
func (s *Server) End(match func(authn.Identity) bool, err error) int {
	s.round.Add(1)
	return s.end("asked", func(c *Caller) bool { return match(c.Identity) }, err)
}

// end ends the streams of matching callers and returns how many. Each is counted before its
// client sees the end.
func (s *Server) end(why string, match func(*Caller) bool, err error) int {
	return s.engine.End(func(c *Caller) bool {
		if !match(c) {
			return false
		}
		s.metrics.ended(why, 1)
		return true
	}, err)
}

// keepTime ends streams whose time is up, until ctx ends.
func (s *Server) keepTime(ctx context.Context) {
	timer := time.NewTimer(look)
	defer timer.Stop()
	for {
		timer.Reset(s.endDue())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.sessions.wake:
		}
	}
}

// endDue ends due sessions and returns when to look again.
func (s *Server) endDue() time.Duration {
	due, wait := s.sessions.due()
	for why, gone := range due {
		s.metrics.ended(endings[why].name, len(gone)) // before a client sees the end
		s.engine.End(func(c *Caller) bool { return gone[c.session] }, endings[why].status)
	}
	return min(wait, look)
}
