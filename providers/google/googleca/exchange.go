package googleca

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const (
	typeJWT         = "urn:ietf:params:oauth:token-type:jwt"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
	platformScope   = "https://www.googleapis.com/auth/cloud-platform"
	// accountTokenLife is the requested lifetime of a service account's token: Google's
	// maximum without a policy for more.
	accountTokenLife = time.Hour
	// maxTokenLife is the longest lifetime accepted in a reply.
	maxTokenLife = 365 * 24 * time.Hour
)

// exchanger exchanges a workload's token at Google's token service for a federated token, and
// that for the token of a service account if one is set. It is safe for concurrent use and
// keeps no token and no connection.
type exchanger struct {
	settings Exchange
	server   *rest.Transport
}

var _ ca.TokenExchanger = (*CA)(nil)

// newExchanger reads the roots; it opens no connection.
func newExchanger(s Settings) (*exchanger, error) {
	own := s.exchange()
	var block setting.TLS
	if own.AllowOtherHosts {
		block.RootFile = string(s.RootFile) // otherwise it is Google's, which the system's roots verify
	}
	config, err := block.Config()
	if err != nil {
		return nil, ca.Errorf(ca.Unavailable, "root_file: %w", err)
	}
	return &exchanger{own, &rest.Transport{TLS: config, MaxReply: maxTokenReply, Timeout: callTimeout}}, nil
}

// ExchangeToken implements [ca.TokenExchanger]. The audience and scopes of the request take
// precedence over the settings. A request that Google's token service does not support is
// [ca.Invalid]. A 4xx reply is [ca.Unauthenticated] if it is about the token, else
// [ca.Denied]; other failures are temporary. Errors contain no token.
func (c *CA) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	config, err := c.exchanger.config(req)
	if err != nil {
		return ca.ExchangedToken{}, err
	}
	calls := &calls{server: c.exchanger.server}
	calls.hide(req.SubjectToken)
	source, err := externalaccount.NewTokenSource(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: calls}), config)
	if err != nil {
		return ca.ExchangedToken{}, ca.Errorf(ca.Invalid, "token exchange: %s", calls.clean(err.Error()))
	}
	got, err := source.Token()
	if err != nil {
		return ca.ExchangedToken{}, calls.failure(ctx)
	}
	if left := time.Until(got.Expiry); left <= 0 || left > maxTokenLife {
		return ca.ExchangedToken{}, calls.errorf(ca.Internal, "the token expires in %s, which is out of bounds", left.Round(time.Second))
	}
	return ca.ExchangedToken{AccessToken: ca.Token(got.AccessToken), IssuedType: typeAccessToken, Expiry: got.Expiry}, nil
}

func (x *exchanger) config(req ca.TokenRequest) (externalaccount.Config, error) {
	out := externalaccount.Config{
		Audience: req.Audience, SubjectTokenType: req.SubjectTokenType, Scopes: req.Scopes, TokenURL: x.settings.STSURL.String(),
		SubjectTokenSupplier: supplier(req.SubjectToken),
	}
	out.Audience = cmp.Or(out.Audience, x.settings.Audience)
	out.SubjectTokenType = cmp.Or(out.SubjectTokenType, typeJWT)
	if len(out.Scopes) == 0 {
		out.Scopes = []string{platformScope}
	}
	if account := x.settings.ServiceAccount; account != "" {
		out.ServiceAccountImpersonationURL = x.settings.IAMURL.At("/v1/projects/-/serviceAccounts/" + account + ":generateAccessToken")
		out.ServiceAccountImpersonationLifetimeSeconds = int(accountTokenLife / time.Second)
	}
	switch {
	case req.SubjectToken == "":
		return out, ca.Errorf(ca.Unauthenticated, "token exchange: no token to exchange")
	case out.Audience == "":
		return out, ca.Errorf(ca.Invalid, "token exchange: no audience: set exchange.audience in the provider's settings")
	case req.Resource != "":
		return out, ca.Errorf(ca.Invalid, "token exchange: resource is %.256q: Google's token service takes an audience instead", req.Resource)
	case req.RequestedType != "" && req.RequestedType != typeAccessToken:
		return out, ca.Errorf(ca.Invalid, "token exchange: requested_token_type is %.256q: Google's token service issues %s", req.RequestedType, typeAccessToken)
	}
	return out, nil
}

// supplier supplies a token from memory.
type supplier ca.Token

func (s supplier) SubjectToken(context.Context, externalaccount.SupplierOptions) (string, error) {
	return string(s), nil
}
