package wire

import (
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"

	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

func tokenRequestToProto(req ca.TokenRequest) (*providerv1.ExchangeTokenRequest, error) {
	if err := checkTokenRequest(req); err != nil {
		return nil, err
	}
	return &providerv1.ExchangeTokenRequest{
		SubjectToken: req.SubjectToken.Reveal(), SubjectTokenType: req.SubjectTokenType,
		Audience: req.Audience, Resource: req.Resource, Scopes: req.Scopes, RequestedTokenType: req.RequestedType,
	}, nil
}

func tokenRequestFromProto(in *providerv1.ExchangeTokenRequest) (ca.TokenRequest, error) {
	req := ca.TokenRequest{
		SubjectToken: ca.Token(in.GetSubjectToken()), SubjectTokenType: in.GetSubjectTokenType(),
		Audience: in.GetAudience(), Resource: in.GetResource(), Scopes: in.GetScopes(), RequestedType: in.GetRequestedTokenType(),
	}
	return req, checkTokenRequest(req)
}

func checkTokenRequest(req ca.TokenRequest) error {
	if req.SubjectToken == "" {
		return ca.Errorf(ca.Invalid, "the request has no token to exchange")
	}
	if n := len(req.Scopes); n > maxNames {
		return ca.Errorf(ca.Invalid, "the request has %d scopes, %d are allowed", n, maxNames)
	}
	words := append([]string{req.SubjectTokenType, req.Audience, req.Resource, req.RequestedType}, req.Scopes...)
	for _, word := range words {
		if len(word) > maxWord || strings.ContainsFunc(word, unicode.IsControl) {
			return ca.Errorf(ca.Invalid, "%q in the request does not have at most %d printable bytes", CleanText(word, req.SubjectToken), maxWord)
		}
	}
	return checkToken(req.SubjectToken)
}

func exchangedToProto(token ca.ExchangedToken) *providerv1.ExchangeTokenResponse {
	out := &providerv1.ExchangeTokenResponse{AccessToken: token.AccessToken.Reveal(), IssuedTokenType: token.IssuedType}
	if !token.Expiry.IsZero() {
		out.Expiry = timestamppb.New(token.Expiry)
	}
	return out
}

func exchangedFromProto(in *providerv1.ExchangeTokenResponse) (ca.ExchangedToken, error) {
	out := ca.ExchangedToken{AccessToken: ca.Token(in.GetAccessToken()), IssuedType: in.GetIssuedTokenType()}
	var expiry time.Time
	if stamp := in.GetExpiry(); stamp != nil {
		if !stamp.IsValid() {
			return ca.ExchangedToken{}, ca.Errorf(ca.Internal, "the provider returned a token with an invalid expiry")
		}
		expiry = stamp.AsTime()
	}
	out.Expiry = expiry
	switch {
	case out.AccessToken == "":
		return ca.ExchangedToken{}, ca.Errorf(ca.Internal, "the provider answered without an access token")
	case checkToken(out.AccessToken) != nil:
		return ca.ExchangedToken{}, ca.Errorf(ca.Internal, "the provider answered with a token that is too long or has control characters")
	case len(out.IssuedType) > maxWord || strings.ContainsFunc(out.IssuedType, unicode.IsControl):
		return ca.ExchangedToken{}, ca.Errorf(ca.Internal, "the provider answered with the token type %q", CleanText(out.IssuedType, out.AccessToken))
	}
	return out, nil
}
