package agent

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/status"
	"github.com/countersign-dev/countersign/plugin-host/program/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// jwtSVIDs signs JWT-SVIDs by one of the providers; nil if there are none.
type jwtSVIDs struct {
	*jwtsvid.Source
	provider  string
	audiences []string
	authority atomic.Pointer[secret.Authority] // of that provider: its client and its tokens
}

// openJWTSVIDs has the Workload API serve JWT-SVIDs, if so configured. The caller closes it.
func openJWTSVIDs(c config.JWTSVID, cfg *agent.Config, log *slog.Logger) (*jwtSVIDs, error) {
	if !c.On() {
		return nil, nil
	}
	j := &jwtSVIDs{provider: c.Provider, audiences: c.Audiences}
	j.follow(cfg.Authorities)
	source, err := jwtsvid.New(jwtsvid.Config{
		Signer: j.authority.Load().Client.(ca.JWTSigner), Audiences: c.Audiences, TTL: c.TTL.Duration,
		Token: j.token, TokenRejected: j.rejected, Tracer: cfg.Tracer, Log: log.With("provider", c.Provider),
	})
	if err != nil {
		return nil, err
	}
	j.Source, cfg.WorkloadAPI.JWT = source, source
	return j, nil
}

// follow takes over the tokens of the provider's entry after a reload. Its client stays.
func (j *jwtSVIDs) follow(authorities []secret.Authority) {
	if j == nil {
		return
	}
	if i := slices.IndexFunc(authorities, func(a secret.Authority) bool { return a.Name == j.provider }); i >= 0 {
		j.authority.Store(&authorities[i])
	}
}

func (j *jwtSVIDs) token(ctx context.Context) (ca.Bearer, error) {
	if read := j.authority.Load().Token; read != nil {
		return read(ctx)
	}
	return ca.Bearer{}, nil
}

func (j *jwtSVIDs) rejected(token ca.Token) {
	if reject := j.authority.Load().TokenRejected; reject != nil {
		reject(token)
	}
}

func (j *jwtSVIDs) status() *status.JWTSVIDs {
	if j == nil {
		return nil
	}
	return status.JWTSVIDsOf(j.provider, j.audiences, j.Status())
}

func (j *jwtSVIDs) close() error {
	if j == nil {
		return nil
	}
	return j.Close()
}
