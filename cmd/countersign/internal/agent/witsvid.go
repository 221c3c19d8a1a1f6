package agent

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

// witSVIDs has one of the providers sign WIT-SVIDs; nil without that experiment. It is a
// [ca.WITSigner].
type witSVIDs struct {
	*witsvid.Source
	signer *tokenSigner[ca.WITSigner]
}

// openWITSVIDs has the Workload API serve WIT-SVIDs, if so configured. The caller closes it.
func openWITSVIDs(c *config.Config, cfg *agent.Config, log *slog.Logger) (*witSVIDs, error) {
	if !c.ServesWIT() {
		return nil, nil
	}
	w := &witSVIDs{signer: newTokenSigner[ca.WITSigner](c.WITProvider(), removed{}, cfg.Authorities)}
	source, err := witsvid.New(witsvid.Config{
		Signer: w, TTL: c.WorkloadAPI.JWTSVID.TTL.Duration,
		Token: w.signer.token, TokenRejected: w.signer.rejected, Tracer: cfg.Tracer, Log: log.With("provider", c.WITProvider()),
	})
	if err != nil {
		return nil, err
	}
	w.Source, cfg.WorkloadAPI.WIT = source, source
	return w, nil
}

func (w *witSVIDs) follow(authorities []secret.Authority) {
	if w != nil && w.signer.follow(authorities) {
		w.Retry()
	}
}

// retry ends the pauses after the failures of a provider.
func (w *witSVIDs) retry(provider string) {
	if w != nil && w.signer.provider == provider {
		w.Retry()
	}
}

// SignWIT implements [ca.WITSigner].
func (w *witSVIDs) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	client, err := w.signer.client(req.Token)
	if err != nil {
		return "", err
	}
	return client.SignWIT(ctx, req)
}

// WatchWITKeys implements [ca.WITSigner]. It goes on with the next client.
func (w *witSVIDs) WatchWITKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return w.signer.watch(ctx, func(ctx context.Context, client ca.WITSigner) error { return client.WatchWITKeys(ctx, changed) })
}

func (w *witSVIDs) status() *status.Tokens {
	if w == nil {
		return nil
	}
	return status.TokensOf(w.signer.provider, w.Status())
}

func (w *witSVIDs) close() error {
	if w == nil {
		return nil
	}
	return w.Close()
}
