package googleca

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
	"github.com/countersign-dev/countersign/sdk/token"
)

const (
	theAudience = "identitynamespace:example.org:https://container.googleapis.com/v1/projects/p/locations/l/clusters/c"
	theFormType = "application/x-www-form-urlencoded"
	federated   = ca.Token("ya29.d.ZmVkZXJhdGVkLXRva2VuLW9mLWEtdGVzdA")
	theAccount  = "agent@shop-1.iam.gserviceaccount.com"
	allIsWell   = `{"access_token":"` + string(federated) + `","issued_token_type":"urn:ietf:params:oauth:token-type:access_token","token_type":"Bearer","expires_in":3600}`
)

func openExchange(t *testing.T, settings Settings) *CA {
	t.Helper()
	c, err := Open(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

var theRequest = ca.TokenRequest{SubjectToken: theToken}

func TestWorkloadTokenBecomesFederatedToken(t *testing.T) {
	s := startTokens(t)
	c := openExchange(t, s.settings())
	got, err := c.ExchangeToken(t.Context(), theRequest)
	if err != nil || got.AccessToken != federated || got.IssuedType != typeAccessToken {
		t.Fatalf("got %+v, %v", got, err)
	}
	if left := time.Until(got.Expiry); left < 59*time.Minute || left > time.Hour {
		t.Errorf("it ends in %s", left)
	}
	want := map[string]string{
		"content-type": theFormType, "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "audience": theAudience, "scope": platformScope,
		"subject_token": theToken.Reveal(), "subject_token_type": token.TypeJWT, "requested_token_type": token.TypeAccessToken,
	}
	if got := fmt.Sprint(s.forms[0]); got != fmt.Sprint(want) {
		t.Errorf("asked with other than %s", strings.ReplaceAll(fmt.Sprint(want), theToken.Reveal(), "(secret)"))
	}
	other := ca.TokenRequest{SubjectToken: theToken, Audience: "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k", Scopes: []string{"a", "b"}, SubjectTokenType: "urn:x"}
	if _, err := c.ExchangeToken(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got := s.forms[1]; got["audience"] != other.Audience || got["scope"] != "a b" || got["subject_token_type"] != "urn:x" {
		t.Error("the request's words did not count before the settings'")
	}
}

func TestFederatedTokenBecomesServiceAccountToken(t *testing.T) {
	s := startTokens(t)
	settings := s.settings()
	settings.Exchange.ServiceAccount, settings.Exchange.IAMURL = theAccount, looseURL(s.url())
	c := openExchange(t, settings)
	got, err := c.ExchangeToken(t.Context(), theRequest)
	if err != nil || got.AccessToken != "ya29.account" || time.Until(got.Expiry) < 59*time.Minute {
		t.Fatalf("got %+v, %v", got, err)
	}
	if want := theAccount + ":generateAccessToken Bearer " + federated.Reveal() + ` {"lifetime":"3600s","scope":["` + platformScope + `"]}`; s.bodies[0] != want {
		t.Errorf("IAM was asked otherwise: %s", strings.ReplaceAll(s.bodies[0], federated.Reveal(), "(secret)"))
	}
	s.iam = saying(http.StatusForbidden, `{"error":{"code":403,"message":"no iam.serviceAccounts.getAccessToken for `+federated.Reveal()+`","status":"PERMISSION_DENIED"}}`)
	_, err = c.ExchangeToken(t.Context(), theRequest)
	mustBe(t, err, ca.ErrDenied, "it answered with 403, PERMISSION_DENIED: no iam.serviceAccounts.getAccessToken for (secret)")
	s.iam = saying(http.StatusServiceUnavailable, "")
	_, err = c.ExchangeToken(t.Context(), theRequest)
	mustBe(t, err, ca.ErrUnavailable, "it answered with 503")
	s.iam = saying(http.StatusOK, `{"accessToken":"ya29.account","expireTime":"soon"}`)
	_, err = c.ExchangeToken(t.Context(), theRequest)
	mustBe(t, err, ca.ErrInternal, "the reply has no token with an expiry")
}

func TestTokenServiceAnswersMapToReasons(t *testing.T) {
	s := startTokens(t)
	c := openExchange(t, s.settings())
	token := func(fields string) string { return `{"access_token":"x","token_type":"Bearer",` + fields + `}` }
	for name, test := range map[string]struct {
		status int
		body   string
		want   *ca.Error
		says   string
	}{
		"the token is not accepted": {400, `{"error":"invalid_grant","error_description":"The JWT has expired"}`, ca.ErrUnauthenticated, "it answered with 400, invalid_grant: The JWT has expired"},
		"an audience is unknown":    {400, `{"error":"invalid_target","error_description":"no such pool"}`, ca.ErrDenied, "400, invalid_target: no such pool"},
		"unauthenticated":           {401, `{}`, ca.ErrUnauthenticated, "it answered with 401"},
		"denied":                    {403, `no JSON ` + theToken.Reveal(), ca.ErrDenied, "it answered with 403"},
		"too many":                  {429, `{"error":"slow down"}`, ca.ErrRateLimited, "429, slow down"},
		"broken":                    {500, `oops`, ca.ErrInternal, "it answered with 500"},
		"away":                      {503, ``, ca.ErrUnavailable, "it answered with 503"},
		"no JSON":                   {200, `<html>` + theToken.Reveal(), ca.ErrInternal, "invalid JSON"},
		"no token":                  {200, `{"token_type":"Bearer","expires_in":3600}`, ca.ErrInternal, "without a valid token"},
		"a token of two lines":      {200, `{"access_token":"a\r\nb","token_type":"Bearer","expires_in":3600}`, ca.ErrInternal, "without a valid token"},
		"another kind of token":     {200, `{"access_token":"x","token_type":"MAC","expires_in":3600}`, ca.ErrInternal, "not a bearer token"},
		"expired":                   {200, token(`"expires_in":-1`), ca.ErrInternal, "the reply has no token with an expiry"},
		"no end":                    {200, token(`"scope":""`), ca.ErrInternal, "the reply has no token with an expiry"},
		"an end as text":            {200, token(`"expires_in":"3600"`), ca.ErrInternal, "the reply has no token with an expiry"},
		"for ever":                  {200, token(`"expires_in":99999999999`), ca.ErrInternal, "out of bounds"},
		"too much":                  {200, `{"access_token":"` + strings.Repeat("x", maxTokenReply) + `"}`, ca.ErrInternal, "the reply has more than 262144 bytes"},
		"too much of an error":      {403, strings.Repeat("x", 1<<20), ca.ErrInternal, "the reply has more than"},
		"an echo": {400, `{"error":"` + theToken.Reveal() + `","error_description":"got ` + theToken.Reveal()[:30] + `\u001b[2J` + strings.Repeat("y", 300) + `"}`, ca.ErrDenied,
			`400, (secret): got (secret)\x1b[2J`},
	} {
		s.answers(saying(test.status, test.body))
		before := s.calls()
		_, err := c.ExchangeToken(t.Context(), theRequest)
		t.Run(name, func(t *testing.T) {
			mustBe(t, err, test.want, "token exchange at "+strings.TrimPrefix(s.url(), "https://")+": ", test.says)
			if s.calls() != before+1 || len(err.Error()) > 700 {
				t.Errorf("%d calls, and an error of %d bytes", s.calls()-before, len(err.Error()))
			}
		})
	}
}

func TestTokenServiceRetryAfterIsPassedOn(t *testing.T) {
	s := startTokens(t)
	c := openExchange(t, s.settings())
	for header, want := range map[string]time.Duration{"120": 2 * time.Minute, "soon": 0, "9999999": 24 * time.Hour} {
		s.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		_, err := c.ExchangeToken(t.Context(), theRequest)
		if mustBe(t, err, ca.ErrUnavailable); ca.RetryAfter(err) != want {
			t.Errorf("%s: to come back after %s", header, ca.RetryAfter(err))
		}
	}
}

func TestTokenFollowsNoRedirect(t *testing.T) {
	elsewhere := startTokens(t)
	s := startTokens(t)
	for _, target := range []string{elsewhere.url() + "/v1/token", s.url() + "/v1/token?again"} {
		for _, code := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			s.answers(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, code) })
			before := s.calls()
			_, err := openExchange(t, s.settings()).ExchangeToken(t.Context(), theRequest)
			mustBe(t, err, ca.ErrDenied, fmt.Sprintf("it answered with %d, a redirect, which is not followed", code))
			if elsewhere.calls() > 0 || s.calls() != before+1 {
				t.Error("it was followed")
			}
		}
	}
}

func TestUnresponsiveTokenServiceIsGivenUp(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits in real time")
	}
	s := startTokens(t)
	c := openExchange(t, s.settings())
	quit := make(chan struct{})
	t.Cleanup(func() { close(quit) })
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "{")
		w.(http.Flusher).Flush()
		select {
		case <-quit:
		case <-r.Context().Done():
		}
	})
	begun := time.Now()
	_, err := c.ExchangeToken(t.Context(), theRequest)
	mustBe(t, err, ca.ErrDeadline, "no reply within 5s")
	if took := time.Since(begun); took < callTimeout || took > callTimeout+time.Minute {
		t.Errorf("given up after %s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.ExchangeToken(ctx, theRequest); !errors.Is(err, context.Canceled) {
		t.Errorf("who went away got %v", err)
	}
}

func TestUntrustedTokenServerGetsNoToken(t *testing.T) {
	s, stranger := startTokens(t), startTokens(t)
	settings := s.settings()
	settings.RootFile = setting.File(stranger.root)
	_, err := openExchange(t, settings).ExchangeToken(t.Context(), theRequest)
	mustBe(t, err, ca.ErrUnavailable, "certificate signed by unknown authority")
	if s.calls() > 0 {
		t.Error("it got a token")
	}
	s.Close()
	settings.RootFile = setting.File(s.root)
	_, err = openExchange(t, settings).ExchangeToken(t.Context(), theRequest)
	mustBe(t, err, ca.ErrUnavailable, "connection refused")
}

func TestRequestUnknownToGoogleIsNotSent(t *testing.T) {
	s := startTokens(t)
	c := openExchange(t, s.settings())
	for says, req := range map[string]ca.TokenRequest{
		"resource is \"r\"":               {SubjectToken: theToken, Resource: "r"},
		"requested_token_type is \"urn:x": {SubjectToken: theToken, RequestedType: "urn:x"},
	} {
		_, err := c.ExchangeToken(t.Context(), req)
		mustBe(t, err, ca.ErrInvalid, says)
	}
	_, err := c.ExchangeToken(t.Context(), ca.TokenRequest{})
	mustBe(t, err, ca.ErrUnauthenticated, "no token to exchange")
	settings := s.settings()
	settings.Exchange, settings.Credentials = nil, Token
	_, err = openExchange(t, settings).ExchangeToken(t.Context(), theRequest)
	mustBe(t, err, ca.ErrInvalid, "no audience: set exchange.audience")
	if s.calls() > 0 {
		t.Error("something was sent")
	}
}

func TestTokenGoesToItsUniverseOnly(t *testing.T) {
	c := openExchange(t, Settings{CAPool: thePool, UniverseDomain: "cloud.example", Credentials: Token, Exchange: &Exchange{Audience: theAudience, ServiceAccount: theAccount}})
	config, err := c.exchanger.config(theRequest)
	if err != nil || config.TokenURL != "https://sts.cloud.example/v1/token" || config.ServiceAccountImpersonationURL != "https://iamcredentials.cloud.example/v1/projects/-/serviceAccounts/"+theAccount+":generateAccessToken" {
		t.Errorf("asked at %s and %s, %v", config.TokenURL, config.ServiceAccountImpersonationURL, err)
	}
	for url, says := range map[string]string{
		"https://sts.googleapis.com/v1/token":                 "",
		"https://sts.mtls.googleapis.com:443/v1/token":        "",
		"https://sts.us-east1.rep.googleapis.com/v1/token":    "",
		"https://sts-psc.p.googleapis.com/v1/token":           "",
		"http://sts.googleapis.com/v1/token":                  "tokens are sent over TLS only",
		"https://storage.googleapis.com/v1/token":             `leads to "storage.googleapis.com"`,
		"https://sts.evil-googleapis.com/v1/token":            "leads to",
		"https://stsevil.googleapis.com/v1/token":             "leads to",
		"https://sts.googleapis.com.evil.example/v1/token":    "leads to",
		"https://sts.googleapis.com:8443/v1/token":            "leads to",
		"https://sts.cloud.example/v1/token":                  "want sts.googleapis.com or one of its regional",
		"https://sts.googleapis.com@evil.example/v1/token":    "it takes https://host",
		"https://user:geheim@sts.googleapis.com/v1/token":     "it takes https://host",
		"https://sts.googleapis.com/v1/token?to=evil.example": "it takes https://host",
		"sts.googleapis.com":                                  "it takes https://host",
	} {
		err := Settings{CAPool: thePool, Exchange: &Exchange{Audience: theAudience, STSURL: looseURL(url)}}.Validate()
		if says == "" && err != nil {
			t.Errorf("%s: %v", url, err)
		} else if says != "" {
			if mustBe(t, err, ca.ErrInvalid, "exchange.sts_url", says); strings.Contains(err.Error(), "geheim") {
				t.Errorf("the password is shown: %v", err)
			}
		}
	}
}

func TestWrongExchangeSettingsAreRefused(t *testing.T) {
	for says, settings := range map[string]Settings{
		`exchange.audience is "": write identitynamespace:`:          {CAPool: thePool, Exchange: &Exchange{}},
		`exchange.audience is "//iam.googleapis.com/x": write`:       {CAPool: thePool, Exchange: &Exchange{Audience: "//iam.googleapis.com/x"}},
		`exchange.service_account is "../x": write`:                  {CAPool: thePool, Exchange: &Exchange{Audience: theAudience, ServiceAccount: "../x"}},
		`exchange.iam_url is set, but exchange.service_account is`:   {CAPool: thePool, Exchange: &Exchange{Audience: theAudience, IAMURL: looseURL("https://iamcredentials.googleapis.com")}},
		`exchange.iam_url leads to "iam.example"`:                    {CAPool: thePool, Exchange: &Exchange{Audience: theAudience, ServiceAccount: theAccount, IAMURL: looseURL("https://iam.example")}},
		`credentials is "adc", but exchange needs the token`:         {CAPool: thePool, Credentials: ADC, Exchange: &Exchange{Audience: theAudience}},
		`credentials is "file", but exchange needs the token`:        {CAPool: thePool, CredentialsFile: "/k", Exchange: &Exchange{Audience: theAudience}},
		`universe_domain is "x.example": it is for the protocol cas`: {Protocol: MeshCA, Endpoint: "mesh:443", Location: "l", UniverseDomain: "x.example"},
	} {
		_, err := Open(t.Context(), settings)
		mustBe(t, err, ca.ErrInvalid, says)
	}
	for _, audience := range []string{theAudience, "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p-1/providers/k-1"} {
		if err := (Settings{CAPool: thePool, Exchange: &Exchange{Audience: audience}}).Validate(); err != nil {
			t.Error(err)
		}
	}
	if got := (Settings{Exchange: &Exchange{}}).withDefaults().Credentials; got != Token {
		t.Errorf("with an exchange, credentials is %q", got)
	}
}
