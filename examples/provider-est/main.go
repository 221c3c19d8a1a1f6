// Command provider-est is a provider for servers of EST (RFC 7030): it posts the CSR to
// simpleenroll, and gets the intermediates and roots from cacerts. It authenticates with the
// token of the request, a password or a client certificate. Build it as
// countersign-provider-est.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"time"

	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

type settings struct {
	URL      setting.URL   `json:"url" jsonschema:"URL of the EST server, https://HOST/.well-known/est"`
	User     string        `json:"user,omitempty" jsonschema:"user to authenticate as, where requests have no token (default none)"`
	Password string        `json:"password,omitempty" jsonschema:"the user's password" secret:"true"`
	Timeout  time.Duration `json:"timeout" jsonschema:"longest time for a call" default:"20s"`
	Poll     time.Duration `json:"poll" jsonschema:"how often to look for changed roots" default:"10m"`
	setting.TLS
}

type est struct {
	provider.RootWatcher
	settings settings
	client   *http.Client
}

func open(_ context.Context, s settings) (*est, error) {
	transport := rest.Transport{NewTLS: s.Config, Timeout: s.Timeout}
	e := &est{settings: s, client: transport.Client()}
	e.RootWatcher = provider.PollRoots(s.Poll, e.Roots)
	return e, nil
}

// CSRSign posts the CSR. A server that is not done yet answers 202 or 503 with Retry-After.
func (e *est) CSRSign(ctx context.Context, req provider.SignRequest) (provider.Certificate, error) {
	csr, _ := pem.Decode(req.CSR)
	if csr == nil {
		return provider.Certificate{}, provider.Invalid(errors.New("the CSR is not PEM"))
	}
	issuers, err := e.ask(ctx, http.MethodGet, "cacerts", nil, "")
	if err != nil {
		return provider.Certificate{}, err
	}
	leaf, err := e.ask(ctx, http.MethodPost, "simpleenroll", base64.StdEncoding.AppendEncode(nil, csr.Bytes), req.Token)
	if err != nil {
		return provider.Certificate{}, err
	}
	return chain.Certificate(req.CSR, leaf, issuers)
}

// Roots returns the self-signed certificates of cacerts.
func (e *est) Roots(ctx context.Context) ([]byte, error) {
	bag, err := e.ask(ctx, http.MethodGet, "cacerts", nil, "")
	if err != nil {
		return nil, err
	}
	return chain.Roots(bag)
}

// ask makes one call and returns the body of a reply with status 200.
func (e *est) ask(ctx context.Context, method, what string, body []byte, token provider.Token) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.settings.URL.JoinPath(what).String(), bytes.NewReader(body))
	if err != nil {
		return nil, provider.Internal(err)
	}
	req.Header.Set("Content-Type", "application/pkcs10")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	} else if e.settings.User != "" {
		req.SetBasicAuth(e.settings.User, e.settings.Password)
	}
	return provider.DoHTTP(e.client, req)
}

func main() { provider.Main("est", "0.1.0", open) }
