package wire

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/countersign-dev/countersign/internal/jws"
	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// SignWIT implements [ca.WITSigner]. Experimental.
func (r *Remote) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	if err := CheckWITRequest(req); err != nil {
		return "", err
	}
	ctx, cancel := r.withDeadline(ctx)
	defer cancel()
	out, err := r.wits.SignWit(ctx, &providerv1.SignWitRequest{
		RequestId: req.ID, SubjectId: req.SubjectID, PublicKey: req.PublicKey, Ttl: durationpb.New(req.TTL), Token: req.Token.Reveal(),
	})
	if err != nil {
		return "", failed(ctx, err, req.Token)
	}
	return checkSVID("WIT-SVID", out.GetSvid())
}

// WatchWITKeys implements [ca.WITSigner], as WatchJWTKeys does. Experimental.
func (r *Remote) WatchWITKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return watch(ctx, r.wits.WatchWitKeys, &providerv1.WatchWitKeysRequest{}, maxJWKS, "its WIT keys", func(out *providerv1.WatchWitKeysResponse) ([]byte, error) {
		return out.GetJwks(), checkJWKS(out.GetJwks())
	}, changed)
}

func (s *server) SignWit(ctx context.Context, in *providerv1.SignWitRequest) (*providerv1.SignWitResponse, error) {
	req := ca.WITRequest{
		ID: in.GetRequestId(), SubjectID: in.GetSubjectId(), PublicKey: in.GetPublicKey(), TTL: in.GetTtl().AsDuration(), Token: ca.Token(in.GetToken()),
	}
	if err := CheckWITRequest(req); err != nil {
		return nil, ToStatus(err)
	}
	svid, err := s.p.SignWIT(ctx, req)
	if err != nil {
		return nil, toStatus(err, req.Token)
	}
	return &providerv1.SignWitResponse{Svid: svid.Reveal()}, nil
}

func (s *server) WatchWitKeys(_ *providerv1.WatchWitKeysRequest, stream grpc.ServerStreamingServer[providerv1.WatchWitKeysResponse]) error {
	return ToStatus(s.p.WatchWITKeys(stream.Context(), func(jwks []byte) error {
		return stream.Send(&providerv1.WatchWitKeysResponse{Jwks: jwks})
	}))
}

// CheckWITRequest checks a request as both ends do: the ID, the subject, the lifetime, the token, and
// that the public key is what [ca.WITRequest] allows, so that it may become cnf.jwk as it is. An
// authority that is called without a connection in between calls it first. An error is
// [ca.ErrInvalid] and does not quote the token. Experimental.
func CheckWITRequest(req ca.WITRequest) error {
	if _, err := jws.ParseProofKey(req.PublicKey); err != nil {
		return ca.Errorf(ca.Invalid, "the request's public key: %w", err)
	}
	return checkSVIDRequest(req.ID, req.SubjectID, req.TTL, req.Token)
}
