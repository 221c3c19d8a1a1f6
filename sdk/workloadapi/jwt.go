package workloadapi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/internal/holder"
	"github.com/countersign-dev/countersign/internal/text"
	workloadv1 "github.com/countersign-dev/countersign/proto/spiffe/workload/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// JWTSource signs and validates JWT-SVIDs: a Source of package jwtsvid. It decides which audiences
// are allowed. Its methods are safe for concurrent use; errors have the reasons of package ca.
type JWTSource interface {
	// Fetch returns a JWT-SVID of a SPIFFE ID for these audiences.
	Fetch(ctx context.Context, id string, audiences []string) (ca.Token, error)
	// Validate judges the JWT-SVID of a stranger.
	Validate(token ca.Token, audience string, trustDomains []string) (id string, claims map[string]any, err error)
	// Keys returns the public keys, a JWK set; nil while they are not known.
	Keys() []byte
	// Watch calls notify after each change of Keys, until stop. notify does not block.
	Watch(notify func()) (stop func())
}

// JWTBundles has the JWT keys of foreign trust domains: a Foreign of package jwtsvid. Its methods are
// safe for concurrent use; errors have the reasons of package ca.
type JWTBundles interface {
	// Keys returns the public keys of a trust domain, a JWK set; nil while they are not known.
	Keys(trustDomain string) []byte
	// DomainOf returns the trust domain that an unverified token claims to be of, or "".
	DomainOf(token ca.Token) string
	// Validate judges a JWT-SVID by the keys of one trust domain, of which it has to be.
	Validate(token ca.Token, audience, trustDomain string) (id string, claims map[string]any, err error)
	// Watch calls notify after each change of Keys, until stop. notify does not block.
	Watch(notify func()) (stop func())
}

// FetchJWTSVID returns JWT-SVIDs of all identities of the caller, or of the one it asks for.
func (s *Service) FetchJWTSVID(ctx context.Context, in *workloadv1.JWTSVIDRequest) (*workloadv1.JWTSVIDResponse, error) {
	before := s.ends.Load()
	caller, err := s.callerOf(ctx, "JWT-SVIDs", s.offer.JWT != nil)
	if err != nil {
		return nil, err
	}
	if len(in.GetAudience()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "a JWT-SVID needs an audience")
	}
	leave, err := s.join(ctx, caller)
	if err != nil {
		return nil, err
	}
	v, err := s.viewOf(ctx, view.svidsVersion, func(v view) bool { return v.has(in.GetSpiffeId()) })
	if err != nil {
		leave()
		return nil, err
	}
	identities, err := v.named(in.GetSpiffeId())
	if err != nil {
		leave()
		return nil, err
	}
	return s.attend(ctx, newStream(caller), before, func(work context.Context) (*workloadv1.JWTSVIDResponse, error) {
		defer leave()
		return s.jwtSVIDs(work, caller, identities, in.GetAudience())
	})
}

// jwtSVIDs has the JWTSource sign for these identities.
func (s *Service) jwtSVIDs(ctx context.Context, caller secret.Caller, identities []liveIdentity, audiences []string) (*workloadv1.JWTSVIDResponse, error) {
	out := &workloadv1.JWTSVIDResponse{}
	ctx = holder.With(ctx, caller.ID)
	for _, h := range identities {
		token, err := s.offer.JWT.Fetch(ctx, h.pair.id, audiences)
		if err != nil {
			s.refuse(caller, h.pair.id, err)
			return nil, jwtStatus(err)
		}
		out.Svids = append(out.Svids, &workloadv1.JWTSVID{SpiffeId: h.pair.id, Svid: token.Reveal(), Hint: h.Hint})
	}
	return out, nil
}

// refuse logs that a caller got no JWT-SVID, once a minute for each reason.
func (s *Service) refuse(caller secret.Caller, id string, err error) {
	if suppressed, ok := s.repeats.Allow(caller.ID+" "+ca.ReasonFor(err).String(), time.Now()); ok {
		s.refused.Warn("no JWT-SVID for a caller", "caller", caller.String(), "spiffe_id", id, "error", text.Clean(err.Error()), "suppressed", suppressed)
	}
}

// FetchJWTBundles sends the keys of the caller's own and of federated trust domains, and again after
// each change. Without a JWTSource, the key sets of the caller's own are empty: clients that want the
// bundles of both kinds wait for these, and java-spiffe takes a reply without any for an error. A
// federated trust domain whose keys are not known is left out: an empty set means that it has none.
func (s *Service) FetchJWTBundles(_ *workloadv1.JWTBundlesRequest, to grpc.ServerStreamingServer[workloadv1.JWTBundlesResponse]) error {
	from := keyBundles(s.offer.FederatedJWT)
	return s.follow(to.Context(), func(v view) string { return v.keysVersion(s.jwtKeys(), from) }, func(v view) bool { return v.hasForeignKeys(from) }, func(v view) error {
		return to.Send(&workloadv1.JWTBundlesResponse{Bundles: keysByDomain[[]byte](v, s.jwtKeys(), from)})
	})
}

// ValidateJWTSVID validates a JWT-SVID of one of the caller's own trust domains, or of a federated
// one.
func (s *Service) ValidateJWTSVID(ctx context.Context, in *workloadv1.ValidateJWTSVIDRequest) (*workloadv1.ValidateJWTSVIDResponse, error) {
	if _, err := s.callerOf(ctx, "JWT-SVIDs", s.offer.JWT != nil || s.offer.FederatedJWT != nil); err != nil {
		return nil, err
	}
	v, err := s.viewOf(ctx, view.domainsVersion, func(view) bool { return true })
	if err != nil {
		return nil, err
	}
	id, claims, err := s.validate(v, ca.Token(in.GetSvid()), in.GetAudience())
	if err != nil {
		return nil, jwtStatus(err)
	}
	all, err := structpb.NewStruct(claims)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the claims of the JWT-SVID cannot be sent")
	}
	return &workloadv1.ValidateJWTSVIDResponse{SpiffeId: id, Claims: all}, nil
}

// validate judges a token by the keys of the trust domain that it claims to be of. An own one comes
// before a foreign one of the same name.
func (s *Service) validate(v view, token ca.Token, audience string) (id string, claims map[string]any, err error) {
	var own []string
	for _, b := range v.bundles {
		own = append(own, strings.TrimPrefix(b.domain, "spiffe://"))
	}
	if foreign := s.offer.FederatedJWT; foreign != nil {
		domain := foreign.DomainOf(token)
		if slices.Contains(v.foreign, domain) && !slices.Contains(own, domain) {
			return foreign.Validate(token, audience, domain)
		}
	}
	if s.offer.JWT == nil {
		return "", nil, ca.Errorf(ca.Invalid, "the JWT-SVID is of no trust domain whose keys are known here")
	}
	return s.offer.JWT.Validate(token, audience, own)
}

// callerOf returns the caller of a call that may not be offered.
func (s *Service) callerOf(ctx context.Context, what string, offered bool) (secret.Caller, error) {
	caller, err := s.caller(ctx)
	if err == nil && !offered {
		err = status.Errorf(codes.Unimplemented, "%s are not offered here; X.509-SVIDs are", what)
	}
	return caller, err
}

var errSeen = errors.New("seen")

// viewOf returns the caller's view, for which it waits as long as a stream does.
func (s *Service) viewOf(ctx context.Context, version func(view) string, whole func(view) bool) (v view, err error) {
	err = s.follow(ctx, version, whole, func(now view) error { v = now; return errSeen })
	if errors.Is(err, errSeen) {
		return v, nil
	}
	return v, err
}

// has reports whether no identity with this SPIFFE ID is still to come, or none at all if it is
// empty: a call gets one reply, so what is missing from it stays missing.
func (v view) has(id string) bool {
	return !v.pending || id != "" && slices.ContainsFunc(v.identities, func(h liveIdentity) bool { return h.pair.id == id })
}

// named returns the identities with this SPIFFE ID; all, if it is empty.
func (v view) named(id string) (all []liveIdentity, err error) {
	for _, h := range v.identities {
		if id == "" || h.pair.id == id {
			all = append(all, h)
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case v.pending:
		return nil, errNothing
	}
	return nil, status.Error(codes.PermissionDenied, "this identity is not the caller's")
}

// noKeys is a JWK set, RFC 7517, section 5.
var noKeys = []byte(`{"keys":[]}`)

func (s *Service) jwtKeys() []byte {
	if s.offer.JWT == nil {
		return noKeys
	}
	return s.offer.JWT.Keys()
}

// keyBundles has the keys of foreign trust domains: a JWTBundles or WITBundles, nil without any.
type keyBundles interface {
	Keys(trustDomain string) []byte
}

// foreignKeys returns the keys of a federated trust domain, or nil.
func foreignKeys(from keyBundles, domain string) []byte {
	if from == nil {
		return nil
	}
	return from.Keys(domain)
}

// keysVersion identifies the content of keysByDomain; empty while it must not be sent.
func (v view) keysVersion(own []byte, from keyBundles) string {
	domains := v.domainsVersion()
	if domains == "" || own == nil {
		return ""
	}
	all := []string{domains, string(own)}
	for _, domain := range v.foreign {
		all = append(all, domain, string(foreignKeys(from, domain)))
	}
	return strings.Join(all, "\x00")
}

// hasForeignKeys reports whether no keys of a federated trust domain are still to come. Of the
// caller's own, the reply has its own keys.
func (v view) hasForeignKeys(from keyBundles) bool {
	return from == nil || !slices.ContainsFunc(v.foreign, func(domain string) bool {
		return from.Keys(domain) == nil && !v.owns(domain)
	})
}

// keysByDomain returns the JWK sets of the caller's own and of federated trust domains.
func keysByDomain[T []byte | string](v view, own []byte, from keyBundles) map[string]T {
	all := map[string]T{}
	for _, domain := range v.foreign {
		if keys := foreignKeys(from, domain); keys != nil {
			all["spiffe://"+domain] = T(keys)
		}
	}
	for _, b := range v.bundles {
		all[b.domain] = T(own)
	}
	return all
}

// jwtStatus is the status of a JWTSource's error. That the authority does not take the agent's own
// credential is not the caller's fault.
func jwtStatus(err error) error {
	code, known := map[ca.Reason]codes.Code{
		ca.Invalid: codes.InvalidArgument, ca.Denied: codes.PermissionDenied, ca.RateLimited: codes.ResourceExhausted,
		ca.Unimplemented: codes.Unimplemented, ca.Canceled: codes.Canceled, ca.Deadline: codes.DeadlineExceeded,
	}[ca.ReasonFor(err)]
	if !known {
		code = codes.Unavailable
	}
	return status.Error(code, text.Clean(err.Error()))
}
