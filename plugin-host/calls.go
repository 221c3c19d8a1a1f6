package pluginhost

import (
	"context"

	"github.com/countersign-dev/countersign/plugin-host/internal/supervise"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// Client calls a provider under one entry, through all restarts. It has the abilities of a
// [Provider], is comparable with == and safe for concurrent use. Before its entry is in force,
// calls wait; once another is, they fail.
type Client struct{ calls }

// calls are the abilities of a provider. Calls wait until it is ready, up to the caller's
// deadline or [Options.CallTimeout]; those of an ability that it lacks return
// [ca.ErrUnimplemented].
type calls struct{ lives supervise.Client }

var (
	_ ca.Client           = calls{}
	_ ca.RootSource       = calls{}
	_ ca.RootWatcher      = calls{}
	_ ca.TokenExchanger   = calls{}
	_ ca.NameCertifier    = calls{}
	_ ca.RenewalAdvisor   = calls{}
	_ ca.RevocationSource = calls{}
	_ ca.JWTSigner        = calls{}
)

// CSRSign implements [ca.Client].
func (c calls) CSRSign(ctx context.Context, req ca.SignRequest) (ca.Certificate, error) {
	return c.lives.CSRSign(ctx, req)
}

// Roots implements [ca.RootSource].
func (c calls) Roots(ctx context.Context) ([]byte, error) { return c.lives.Roots(ctx) }

// WatchRoots implements [ca.RootWatcher]. It survives restarts of the process: changed is
// called only for roots that differ.
func (c calls) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	return c.lives.WatchRoots(ctx, changed)
}

// ExchangeToken implements [ca.TokenExchanger].
func (c calls) ExchangeToken(ctx context.Context, req ca.TokenRequest) (ca.ExchangedToken, error) {
	return c.lives.ExchangeToken(ctx, req)
}

// CertifiesNames implements [ca.NameCertifier] by the provider's metadata.
func (c calls) CertifiesNames(ctx context.Context) error { return c.lives.CertifiesNames(ctx) }

// RenewalInfo implements [ca.RenewalAdvisor].
func (c calls) RenewalInfo(ctx context.Context, leaf []byte) (ca.RenewalInfo, error) {
	return c.lives.RenewalInfo(ctx, leaf)
}

// Revocations implements [ca.RevocationSource].
func (c calls) Revocations(ctx context.Context) ([]byte, error) { return c.lives.Revocations(ctx) }

// SignJWT implements [ca.JWTSigner].
func (c calls) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	return c.lives.SignJWT(ctx, req)
}

// WatchJWTKeys implements [ca.JWTSigner]. It survives restarts of the process: changed is
// called only for keys that differ.
func (c calls) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return c.lives.WatchJWTKeys(ctx, changed)
}
