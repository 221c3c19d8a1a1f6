package discovery

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/countersign-dev/countersign/internal/strangers"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// The RPC metadata keys that are read.
const (
	authorization = "authorization"
	clusterID     = "clusterid" // as sent by Istio's agents
)

// What a client sees: no details of the reason.
var (
	errNotReady    = status.Error(codes.Unavailable, "the server is not ready yet; retry later")
	errUnknown     = status.Error(codes.Unauthenticated, "the caller could not be authenticated")
	errUnavailable = status.Error(codes.Unavailable, "the caller cannot be authenticated at the moment; retry later")
	errBusy        = status.Error(codes.ResourceExhausted, "too many callers are being authenticated; retry later")
	errPlaintext   = status.Error(codes.Unauthenticated, "tokens are accepted only over TLS")
)

// open admits a stream or fetch, or returns the status that refuses it.
func (s *Server) open(ctx context.Context, service string) (*session, error) {
	if err := s.cfg.Ready(); err != nil {
		return nil, s.refuse(ctx, notReady, errNotReady, shown(err.Error()))
	}
	round := s.round.Load()
	credential, err := s.credentialOf(ctx)
	if err != nil {
		return nil, err
	}
	id, err := s.authenticate(ctx, credential)
	if err != nil {
		return nil, err
	}
	of := &session{
		service: service, peer: addressOf(ctx), identity: id, claim: credential.Cluster, round: round,
		types: make([]progress, len(s.urls)),
	}
	if id.Kind == authn.ByCertificate {
		of.chain = credential.Chain
	}
	of.caller = &Caller{Identity: id, Cluster: s.clusterOf(of, of.claim), Node: Node{Metadata: &structpb.Struct{}}, session: of}
	if err := s.sessions.enter(of); err != nil {
		return nil, s.refuse(ctx, overLimit, err, status.Convert(err).Message())
	}
	return of, nil
}

// admit returns the caller of an opened stream to the engine. It accounts for changes
// since the caller was authenticated.
func (s *Server) admit(ctx context.Context) (*Caller, error) {
	of := sessionOf(ctx)
	if of == nil {
		return nil, errUnknown
	}
	if err := s.sessions.ended(of); err != nil {
		return nil, err
	}
	if round := s.round.Load(); round != of.round {
		credential, err := s.credentialOf(ctx)
		if err != nil {
			return nil, err
		}
		id, err := s.authenticate(ctx, credential)
		if err != nil {
			return nil, err
		}
		if id.Kind != of.identity.Kind || id.String() != of.identity.String() {
			return nil, s.refuse(ctx, refused, errUnknown, "the credential no longer belongs to the same identity")
		}
		of.round = round
	}
	return of.admitted(), nil
}

// authenticate returns the identity that the credential proves, or a status.
func (s *Server) authenticate(ctx context.Context, credential authn.Credential) (authn.Identity, error) {
	free, full := s.authenticating.Take(credential.Peer)
	if full != nil {
		return authn.Identity{}, s.refuse(ctx, limitOf(full), errBusy, "too many streams are being authenticated")
	}
	defer free()
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Times.Authenticate)
	defer cancel()
	id, err := s.cfg.Authenticator.Authenticate(bounded, credential)
	if err == nil && id.String() == "" {
		err = authn.Errorf(authn.ErrRefused, "the authenticator returned no identity")
	}
	if err == nil {
		s.metrics.authenticated(id.Kind)
		if p, ok := peer.FromContext(ctx); ok {
			strangers.Known(p.Addr)
		}
		return id, nil
	}
	seen, reason := errUnknown, refused
	switch {
	case errors.Is(err, authn.ErrUnavailable):
		seen, reason = errUnavailable, unavailable
	case errors.Is(err, authn.ErrNotMine):
		reason = noCredential
	}
	return authn.Identity{}, s.refuse(ctx, reason, seen, reasons(err, credential.Token))
}

// reasons returns what to log about an error.
func reasons(err error, token ca.Token) any {
	if known, ok := errors.AsType[*authn.UnknownCallerError](err); ok {
		return known // its LogValue lists all reasons, sanitized
	}
	return text.Redact(err.Error(), token)
}

// credentialOf returns the caller's credential, or a status.
func (s *Server) credentialOf(ctx context.Context) (authn.Credential, error) {
	var out authn.Credential
	secure := false
	if p, ok := peer.FromContext(ctx); ok {
		out.Peer = strangers.HostOf(p.Addr)
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			secure, out.Chain = true, info.State.PeerCertificates
		}
	}
	token, fault := strangers.Bearer(metadata.ValueFromIncomingContext(ctx, authorization))
	clusters := metadata.ValueFromIncomingContext(ctx, clusterID)
	switch {
	case fault != "":
		return out, s.refuse(ctx, malformed, errUnknown, fault)
	case token != "" && !secure && !s.cfg.AllowTokenOverPlaintext:
		return out, s.refuse(ctx, plaintext, errPlaintext, "a token was sent without TLS; treat it as leaked")
	case len(clusters) > 1:
		return out, s.refuse(ctx, malformed, errUnknown, "duplicate clusterid metadata")
	case len(clusters) == 1:
		out.Cluster = clusters[0]
	}
	out.Token = token
	return out, nil
}

func addressOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// shown returns foreign text sanitized for display.
func shown(foreign string) string { return text.Clean(foreign) }
