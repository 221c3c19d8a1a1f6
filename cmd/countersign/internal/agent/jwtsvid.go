package agent

import (
	"context"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// jwtSVIDs signs JWT-SVIDs by one of the providers; nil if there are none. It is a [ca.JWTSigner].
type jwtSVIDs struct {
	*jwtsvid.Source
	signer    *tokenSigner[ca.JWTSigner]
	audiences []string
}

// openJWTSVIDs has the Workload API serve JWT-SVIDs, if so configured. The caller closes it.
func openJWTSVIDs(c config.JWTSVID, cfg *agent.Config, log *slog.Logger) (*jwtSVIDs, error) {
	if !c.On() {
		return nil, nil
	}
	j := &jwtSVIDs{signer: newTokenSigner[ca.JWTSigner](c.Provider, removed{}, cfg.Authorities), audiences: c.Audiences}
	source, err := jwtsvid.New(jwtsvid.Config{
		Signer: j, Audiences: c.Audiences, TTL: c.TTL.Duration,
		Token: j.signer.token, TokenRejected: j.signer.rejected, Tracer: cfg.Tracer, Log: log.With("provider", c.Provider),
	})
	if err != nil {
		return nil, err
	}
	j.Source, cfg.WorkloadAPI.JWT = source, source
	return j, nil
}

func (j *jwtSVIDs) follow(authorities []secret.Authority) {
	if j != nil && j.signer.follow(authorities) {
		j.Retry()
	}
}

// retry ends the pauses after the failures of a provider.
func (j *jwtSVIDs) retry(provider string) {
	if j != nil && j.signer.provider == provider {
		j.Retry()
	}
}

// SignJWT implements [ca.JWTSigner].
func (j *jwtSVIDs) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	client, err := j.signer.client(req.Token)
	if err != nil {
		return "", err
	}
	return client.SignJWT(ctx, req)
}

// WatchJWTKeys implements [ca.JWTSigner]. It goes on with the next client.
func (j *jwtSVIDs) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	return j.signer.watch(ctx, func(ctx context.Context, client ca.JWTSigner) error { return client.WatchJWTKeys(ctx, changed) })
}

func (j *jwtSVIDs) status() *status.JWTSVIDs {
	if j == nil {
		return nil
	}
	return status.JWTSVIDsOf(j.signer.provider, j.audiences, j.Status())
}

func (j *jwtSVIDs) close() error {
	if j == nil {
		return nil
	}
	return j.Close()
}
