package wire

import (
	"context"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// The limits of a JWT-SVID and of a WIT-SVID: number of audiences, everything else in bytes.
const (
	maxAudiences = 64
	maxJWT       = 16 << 10
	maxJWKS      = 256 << 10
)

// SignJWT implements [ca.JWTSigner].
func (r *Remote) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	if err := checkJWTRequest(req); err != nil {
		return "", err
	}
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	out, err := r.jwts.SignJwt(ctx, &providerv1.SignJwtRequest{
		RequestId: req.ID, SubjectId: req.SubjectID, Audiences: req.Audiences, Ttl: durationpb.New(req.TTL), Token: req.Token.Reveal(),
	})
	if err != nil {
		return "", failed(ctx, err, req.Token)
	}
	return checkSVID("JWT-SVID", out.GetSvid())
}

// WatchJWTKeys implements [ca.JWTSigner]. It passes on a set a second at most, the newest. If
// the provider ends the watch without an error, it returns [ca.ErrUnavailable].
func (r *Remote) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return watch(ctx, r.jwts.WatchJwtKeys, &providerv1.WatchJwtKeysRequest{}, maxJWKS, "its JWT keys", func(out *providerv1.WatchJwtKeysResponse) ([]byte, error) {
		return out.GetJwks(), checkJWKS(out.GetJwks())
	}, changed)
}

func (s *server) SignJwt(ctx context.Context, in *providerv1.SignJwtRequest) (*providerv1.SignJwtResponse, error) {
	req := ca.JWTRequest{
		ID: in.GetRequestId(), SubjectID: in.GetSubjectId(), Audiences: in.GetAudiences(), TTL: in.GetTtl().AsDuration(), Token: ca.Token(in.GetToken()),
	}
	if err := checkJWTRequest(req); err != nil {
		return nil, ToStatus(err)
	}
	svid, err := s.p.SignJWT(ctx, req)
	if err != nil {
		return nil, toStatus(err, req.Token)
	}
	return &providerv1.SignJwtResponse{Svid: svid.Reveal()}, nil
}

func (s *server) WatchJwtKeys(_ *providerv1.WatchJwtKeysRequest, stream grpc.ServerStreamingServer[providerv1.WatchJwtKeysResponse]) error {
	return ToStatus(s.p.WatchJWTKeys(stream.Context(), func(jwks []byte) error {
		return stream.Send(&providerv1.WatchJwtKeysResponse{Jwks: jwks})
	}))
}

func checkJWTRequest(req ca.JWTRequest) error {
	if n := len(req.Audiences); n == 0 || n > maxAudiences {
		return ca.Errorf(ca.Invalid, "the request has %d audiences, want 1 to %d", n, maxAudiences)
	}
	for _, audience := range req.Audiences {
		if audience == "" || !isWord(audience) {
			return ca.Errorf(ca.Invalid, "the audience %q does not have 1 to %d printable bytes", CleanText(audience, req.Token), maxWord)
		}
	}
	return checkSVIDRequest(req.ID, req.SubjectID, req.TTL, req.Token)
}

// checkSVIDRequest checks what requests of JWT-SVIDs and of WIT-SVIDs have.
func checkSVIDRequest(id, subject string, ttl time.Duration, token ca.Token) error {
	switch {
	case !isUUID(id):
		return ca.Errorf(ca.Invalid, "the request's ID is %q, want a UUID", CleanText(id, token))
	case !strings.HasPrefix(subject, "spiffe://") || !isWord(subject):
		return ca.Errorf(ca.Invalid, "the request's subject is %q, want a SPIFFE ID", CleanText(subject, token))
	case ttl <= 0:
		return ca.Errorf(ca.Invalid, "the request's lifetime is %s, want more than none", ttl)
	}
	return checkToken(token)
}

// isWord reports whether text is short and has no control characters.
func isWord(text string) bool {
	return len(text) <= maxWord && !strings.ContainsFunc(text, unicode.IsControl)
}

// checkSVID checks the size of a reply of this kind.
func checkSVID(kind, svid string) (ca.Token, error) {
	if n := len(svid); n == 0 || n > maxJWT {
		return "", ca.Errorf(ca.Internal, "the provider answered with a %s of %d bytes, it has 1 to %d", kind, n, maxJWT)
	}
	return ca.Token(svid), nil
}

func checkJWKS(jwks []byte) error {
	if n := len(jwks); n == 0 || n > maxJWKS {
		return ca.Errorf(ca.Internal, "the provider sent %d bytes of keys, want 1 to %d", n, maxJWKS)
	}
	return nil
}
