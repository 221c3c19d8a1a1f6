package googleca

import (
	"context"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google/externalaccount"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const (
	typeJWT         = "urn:ietf:params:oauth:token-type:jwt"
	typeAccessToken = "urn:ietf:params:oauth:token-type:access_token"
	platformScope   = "https://www.googleapis.com/auth/cloud-platform"
	// accountTokenLife is asked for of a service account's token: what Google gives
	// without further policy.
	accountTokenLife = time.Hour
	// maxTokenLife is the longest life that is believed.
	maxTokenLife = 365 * 24 * time.Hour
)

// exchanger turns a workload's token into one of Google's: at the token service into a
// federated one, and where a service account is set into that account's. It is safe
// for concurrent use, keeps no token and no connection.
type exchanger struct {
	settings Exchange
	server   *rest.Transport
}

var _ ca.TokenExchanger = (*CA)(nil)

// newExchanger makes no connection.
func newExchanger(s Settings) (*exchanger, error) {
	own := s.exchange()
	var rootFile string
	if own.AllowOtherHosts {
		rootFile = s.RootFile // else it is Google's, whose roots the system has
	}
	config, err := tlsConfig(rootFile)
	if err != nil {
		return nil, err
	}
	return &exchanger{own, &rest.Transport{TLS: config, MaxReply: maxTokenReply, Timeout: callTimeout}}, nil
}

// ExchangeToken implements [ca.TokenExchanger]. The request's audience and scopes count
// before those of the settings. A request that Google's token service knows nothing of
// is [ca.Invalid]; its no (4xx) is [ca.Unauthenticated] where it is about the token, else
// [ca.Denied], and has its words; all else may pass. No text has a token.
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
		return ca.ExchangedToken{}, calls.errorf(ca.Internal, "its token ends in %s, which is out of bounds", left.Round(time.Second))
	}
	return ca.ExchangedToken{AccessToken: ca.Token(got.AccessToken), IssuedType: typeAccessToken, Expiry: got.Expiry}, nil
}

func (x *exchanger) config(req ca.TokenRequest) (externalaccount.Config, error) {
	out := externalaccount.Config{
		Audience: req.Audience, SubjectTokenType: req.SubjectTokenType, Scopes: req.Scopes, TokenURL: x.settings.STSURL,
		SubjectTokenSupplier: supplier(req.SubjectToken),
	}
	if out.Audience == "" {
		out.Audience = x.settings.Audience
	}
	if out.SubjectTokenType == "" {
		out.SubjectTokenType = typeJWT
	}
	if len(out.Scopes) == 0 {
		out.Scopes = []string{platformScope}
	}
	if account := x.settings.ServiceAccount; account != "" {
		out.ServiceAccountImpersonationURL = strings.TrimSuffix(x.settings.IAMURL, "/") + "/v1/projects/-/serviceAccounts/" + account + ":generateAccessToken"
		out.ServiceAccountImpersonationLifetimeSeconds = int(accountTokenLife / time.Second)
	}
	switch {
	case req.SubjectToken == "":
		return out, ca.Errorf(ca.Unauthenticated, "token exchange: there is no token to exchange")
	case out.Audience == "":
		return out, ca.Errorf(ca.Invalid, "token exchange: nothing says for whom: set exchange.audience in the provider's settings")
	case req.Resource != "":
		return out, ca.Errorf(ca.Invalid, "token exchange: resource is %.256q: Google's token service takes none, but an audience", req.Resource)
	case req.RequestedType != "" && req.RequestedType != typeAccessToken:
		return out, ca.Errorf(ca.Invalid, "token exchange: requested_token_type is %.256q: Google's token service gives %s", req.RequestedType, typeAccessToken)
	}
	return out, nil
}

// supplier hands over a token that is in memory.
type supplier ca.Token

func (s supplier) SubjectToken(context.Context, externalaccount.SupplierOptions) (string, error) {
	return string(s), nil
}
