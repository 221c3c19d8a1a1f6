package main

import (
	"context"
	"encoding/json"

	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/chain"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

// authority is a CFSSL server.
type authority struct {
	client  *rest.Client
	profile string
	issued  provider.Issued[string, provider.Certificate]
}

func open(_ context.Context, s settings) (*authority, error) {
	client, err := rest.New(rest.Config{URL: s.URL, TLS: s.TLS, Failure: failure})
	if err != nil {
		return nil, err
	}
	return &authority{client: client, profile: s.Profile}, nil
}

// reply is what each endpoint of CFSSL returns.
type reply struct {
	Result struct {
		Certificate string `json:"certificate"`
	} `json:"result"`
	Errors []struct {
		Message string `json:"message"`
	} `json:"errors"`
}

func failure(body []byte) string {
	var r reply
	if json.Unmarshal(body, &r) != nil || len(r.Errors) == 0 {
		return ""
	}
	return r.Errors[0].Message
}

// call posts to an endpoint and returns the certificate of the reply in PEM.
func (a *authority) call(ctx context.Context, endpoint, csr string) ([]byte, error) {
	body := map[string]string{"profile": a.profile}
	if csr != "" {
		body["certificate_request"] = csr
	}
	var r reply
	err := a.client.Do(ctx, rest.Call{Path: "/api/v1/cfssl/" + endpoint, Body: body}, &r)
	return []byte(r.Result.Certificate), err
}

// CSRSign has a request signed; the server's profile decides the lifetime.
func (a *authority) CSRSign(ctx context.Context, req provider.SignRequest) (provider.Certificate, error) {
	key := req.ID + string(req.CSR)
	if held, ok := a.issued.Of(key); ok {
		return held, nil
	}
	leaf, err := a.call(ctx, "sign", string(req.CSR))
	if err != nil {
		return provider.Certificate{}, err
	}
	issuer, err := a.call(ctx, "info", "")
	if err != nil {
		return provider.Certificate{}, err
	}
	certificate, err := chain.Certificate(req.CSR, leaf, issuer)
	if err == nil {
		a.issued.Keep(key, certificate)
	}
	return certificate, err
}

// Roots returns the certificate of the CA.
func (a *authority) Roots(ctx context.Context) ([]byte, error) {
	bag, err := a.call(ctx, "info", "")
	if err != nil {
		return nil, err
	}
	return chain.Roots(bag)
}
