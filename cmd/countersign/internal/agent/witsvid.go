package agent

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

// witSVIDs has one of the providers sign WIT-SVIDs; zero without that experiment. It is a
// [ca.WITSigner].
type witSVIDs struct {
	*witsvid.Source
	*tokenSigner[ca.WITSigner]
}

// openWITSVIDs has the Workload API serve WIT-SVIDs, if so configured. The caller closes it.
func openWITSVIDs(c *config.Config, cfg *agent.Config, log *slog.Logger) (w witSVIDs, err error) {
	if !c.ServesWIT() {
		return w, nil
	}
	w.tokenSigner = newTokenSigner[ca.WITSigner](c.WITProvider(), removed{}, cfg.Authorities)
	w.Source, err = witsvid.New(witsvid.Config{
		Signer: w, TTL: c.WorkloadAPI.JWTSVID.TTL.Duration,
		Token: w.token, TokenRejected: w.rejected, Tracer: cfg.Tracer, Log: log.With("provider", c.WITProvider()),
	})
	if err != nil {
		return w, err
	}
	w.source, cfg.WorkloadAPI.WIT = w.Source, w.Source
	return w, nil
}

// SignWIT implements [ca.WITSigner].
func (w witSVIDs) SignWIT(ctx context.Context, req ca.WITRequest) (ca.Token, error) {
	client, err := w.client(req.Token)
	if err != nil {
		return "", err
	}
	return client.SignWIT(ctx, req)
}

// WatchWITKeys implements [ca.WITSigner]. It goes on with the next client.
func (w witSVIDs) WatchWITKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return w.watch(ctx, changed, ca.WITSigner.WatchWITKeys)
}

func (w witSVIDs) status() *status.Tokens {
	if w.Source == nil {
		return nil
	}
	return status.TokensOf(w.provider, w.Status())
}
