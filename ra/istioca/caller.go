package istioca

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/countersign-dev/countersign/internal/strangers"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// The metadata that is read.
const (
	authorization = "authorization"
	clusterID     = "clusterid"
)

// caller is who asks, verified.
type caller struct {
	ra.Subject
	kind  authn.Kind
	alive bool // its pod was looked up, and Node is that pod's
	// What a chain of renewals begins with, or goes on from: the issuer of a token that is bound
	// to no pod, or the certificate that was presented.
	issuer    string
	podless   bool
	token     string // a hash that identifies the token
	presented *presented
}

// holder identifies the machine among those that share its subject: by its chain of renewals, else by
// its token. A pod is one holder.
func (c caller) holder(a asked) string {
	if a.impersonated != "" {
		return ""
	}
	return c.machine()
}

func (c caller) machine() string {
	switch {
	case c.presented != nil:
		return "chain " + c.presented.of
	case c.podless:
		return "token " + c.token
	}
	return ""
}

// hashOf returns a hash of what a token's signature covers. The signature itself has several forms that
// are valid (ECDSA), and must not make several tokens of one.
func hashOf(token ca.Token) string {
	text := string(token)
	if last := strings.LastIndexByte(text, '.'); last > 0 {
		text = text[:last]
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// result is the outcome of a call that succeeds.
func (c caller) result() Result {
	if c.presented != nil {
		return Renewed
	}
	return Issued
}

// key identifies the caller for [Limits.CallsOfCaller]; machines share that of their account.
func (c caller) key() string {
	return strings.Join([]string{c.Cluster, c.Namespace, c.ServiceAccount, c.PodUID, c.User}, "\x00")
}

// What a stranger sees: no details of the reason.
const (
	unknownCaller = "the caller could not be authenticated"
	unsureCaller  = "the caller cannot be authenticated at the moment; retry later"
)

// admit returns the caller, or why it is not served.
func (s *Server) admit(ctx context.Context) (caller, *fault) {
	credential, fault := s.credentialOf(ctx)
	if fault != nil {
		return caller{}, fault
	}
	free, full := s.authenticating.Take(credential.Peer)
	if full != nil {
		return caller{}, faultf(limitOf(full), codes.ResourceExhausted, "too many callers are being authenticated; retry later")
	}
	defer free()
	bounded, cancel := context.WithTimeout(ctx, s.cfg.Times.Authenticate)
	defer cancel()
	if len(credential.Chain) > 0 {
		return s.machine(ctx, bounded, credential)
	}
	who, err := s.authenticate(bounded, credential)
	return who, s.stranger(ctx, err, credential.Token)
}

// stranger is the fault of a caller who could not be authenticated.
func (s *Server) stranger(ctx context.Context, err error, token ca.Token) (f *fault) {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return s.goneOrEnding(ctx)
	case errors.Is(err, authn.ErrUnavailable):
		f = faultf(CannotVerify, codes.Unavailable, unsureCaller)
	default:
		f = faultf(Unauthenticated, codes.Unauthenticated, unknownCaller)
	}
	f.token = token
	return f.because(err)
}

func (s *Server) authenticate(ctx context.Context, c authn.Credential) (caller, error) {
	id, err := s.identify(ctx, c)
	if err != nil {
		return caller{}, err
	}
	who, err := s.callers.Load().callerOf(id, c.Cluster)
	if err != nil {
		return caller{}, err
	}
	who.token = hashOf(c.Token)
	return s.alive(ctx, who)
}

// identify asks the authenticator whose kind of token it is. That one's no is final.
func (s *Server) identify(ctx context.Context, c authn.Credential) (authn.Identity, error) {
	for _, each := range s.callers.Load().Tokens {
		id, err := each.Authenticator.Authenticate(ctx, c)
		switch {
		case errors.Is(err, authn.ErrNotMine):
			continue
		case err != nil:
			return authn.Identity{}, err
		case id.String() == "":
			return authn.Identity{}, authn.Errorf(authn.ErrRefused, "the authenticator %q returned no identity", each.Name)
		}
		return id, nil
	}
	return authn.Identity{}, authn.Errorf(authn.ErrRefused, "no authenticator is for such a token")
}

// credentialOf returns the token of a call, or without any its client certificate, and what it
// names as its cluster.
func (s *Server) credentialOf(ctx context.Context) (authn.Credential, *fault) {
	var out authn.Credential
	var over credentials.TLSInfo
	secure := false
	if p, ok := peer.FromContext(ctx); ok {
		out.Peer = strangers.HostOf(p.Addr)
		over, secure = p.AuthInfo.(credentials.TLSInfo)
	}
	token, wrong := strangers.Bearer(metadata.ValueFromIncomingContext(ctx, authorization))
	clusters := metadata.ValueFromIncomingContext(ctx, clusterID)
	switch {
	case !secure:
		wrong = "tokens are accepted only over TLS"
	case len(clusters) > 1:
		wrong = "the metadata clusterid is there more than once"
	case len(clusters) == 1:
		out.Cluster = clusters[0]
	}
	if wrong == "" && token == "" && s.callers.Load().Renewals.on() {
		out.Chain = over.State.PeerCertificates
	}
	if wrong == "" && token == "" && len(out.Chain) == 0 {
		wrong = "there is no token"
	}
	if wrong != "" {
		return out, faultf(Unauthenticated, codes.Unauthenticated, unknownCaller).because(errors.New(wrong))
	}
	out.Token = token
	return out, nil
}

// callerOf returns the subject of a verified identity. Its cluster is the one whose API server
// reviewed the token, and a ClusterID of another is refused; or it is that of the issuer, whatever
// ClusterID the agent of a virtual machine sends.
func (c Config) callerOf(id authn.Identity, claim string) (caller, error) {
	who := caller{kind: id.Kind, podless: id.Pod == "" && id.PodUID == "", Subject: ra.Subject{
		Kind: ra.ServiceAccount, Namespace: id.Namespace, ServiceAccount: id.ServiceAccount, ServiceAccountUID: id.ServiceAccountUID,
	}}
	switch id.Kind {
	case authn.ByTokenReview:
		who.Cluster, who.Verified = id.Cluster, "token review"
		who.Pod, who.PodUID, who.Node = id.Pod, id.PodUID, id.Node
	case authn.ByJWT:
		// Its claims about a pod were true when it was signed, and were not checked since.
		who.Cluster, who.Verified = c.IssuerClusters[id.Issuer], "token of an OIDC issuer"
		who.issuer = id.Issuer
	default:
		return who, authn.Errorf(authn.ErrRefused, "callers known by %q are not served here", id.Kind)
	}
	if id.Namespace == "" {
		who.Kind, who.User = ra.User, id.String()
	}
	switch {
	case who.Cluster == "":
		return who, authn.Errorf(authn.ErrRefused, "no cluster is configured for the issuer %.256q", id.Issuer)
	case id.Kind == authn.ByTokenReview && claim != "" && claim != who.Cluster:
		return who, authn.Errorf(authn.ErrRefused, "the token is of the cluster %.256q, and the metadata clusterid is %.256q", who.Cluster, claim)
	}
	return who, nil
}
