package agent

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
)

// jwtSVIDs has one of the providers sign JWT-SVIDs; zero: none. It is a [ca.JWTSigner].
type jwtSVIDs struct {
	*jwtsvid.Source
	*tokenSigner[ca.JWTSigner]
	audiences []string
}

// openJWTSVIDs has the Workload API serve JWT-SVIDs, if so configured. The caller closes it.
func openJWTSVIDs(c config.JWTSVID, cfg *agent.Config, log *slog.Logger) (j jwtSVIDs, err error) {
	if !c.On() {
		return j, nil
	}
	j.tokenSigner, j.audiences = newTokenSigner[ca.JWTSigner](c.Provider, removed{}, cfg.Authorities), c.Audiences
	j.Source, err = jwtsvid.New(jwtsvid.Config{
		Signer: j, Audiences: c.Audiences, TTL: c.TTL.Duration,
		Token: j.token, TokenRejected: j.rejected, Tracer: cfg.Tracer, Log: log.With("provider", c.Provider),
	})
	if err != nil {
		return j, err
	}
	j.source, cfg.WorkloadAPI.JWT = j.Source, j.Source
	return j, nil
}

// SignJWT implements [ca.JWTSigner].
func (j jwtSVIDs) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	client, err := j.client(req.Token)
	if err != nil {
		return "", err
	}
	return client.SignJWT(ctx, req)
}

// WatchJWTKeys implements [ca.JWTSigner]. It goes on with the next client.
func (j jwtSVIDs) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return j.watch(ctx, changed, ca.JWTSigner.WatchJWTKeys)
}

func (j jwtSVIDs) status() *status.JWTSVIDs {
	if j.Source == nil {
		return nil
	}
	return status.JWTSVIDsOf(j.provider, j.audiences, j.Status())
}
