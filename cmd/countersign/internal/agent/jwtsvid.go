package agent

import (
	"context"
	"log/slog"
	"sync"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/status"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// jwtSVIDs signs JWT-SVIDs by one of the providers; nil if there are none. It is a
// [ca.JWTSigner] that a reload may give another client.
type jwtSVIDs struct {
	*jwtsvid.Source
	provider  string
	audiences []string

	mu       sync.Mutex
	from     *jwtAuthority
	replaced chan struct{} // closed when from is another
}

// jwtAuthority is the provider's entry: its client and its tokens.
type jwtAuthority struct {
	ca.JWTSigner
	tokens secret.Authority
}

// openJWTSVIDs has the Workload API serve JWT-SVIDs, if so configured. The caller closes it.
func openJWTSVIDs(c config.JWTSVID, cfg *agent.Config, log *slog.Logger) (*jwtSVIDs, error) {
	if !c.On() {
		return nil, nil
	}
	j := &jwtSVIDs{provider: c.Provider, audiences: c.Audiences, replaced: make(chan struct{})}
	j.follow(cfg.Authorities)
	source, err := jwtsvid.New(jwtsvid.Config{
		Signer: j, Audiences: c.Audiences, TTL: c.TTL.Duration,
		Token: j.token, TokenRejected: j.rejected, Tracer: cfg.Tracer, Log: log.With("provider", c.Provider),
	})
	if err != nil {
		return nil, err
	}
	j.Source, cfg.WorkloadAPI.JWT = source, source
	return j, nil
}

// follow takes over the client and the tokens of the provider's entry after a reload.
func (j *jwtSVIDs) follow(authorities []secret.Authority) {
	if j == nil {
		return
	}
	next := &jwtAuthority{JWTSigner: removed{}}
	for _, a := range authorities {
		if signer, ok := a.Client.(ca.JWTSigner); ok && a.Name == j.provider {
			next = &jwtAuthority{signer, a}
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.from == nil || j.from.JWTSigner != next.JWTSigner {
		close(j.replaced)
		j.replaced = make(chan struct{})
	}
	j.from = next
}

func (j *jwtSVIDs) now() (from *jwtAuthority, replaced <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.from, j.replaced
}

// SignJWT implements [ca.JWTSigner].
func (j *jwtSVIDs) SignJWT(ctx context.Context, req ca.JWTRequest) (ca.Token, error) {
	from, _ := j.now()
	return from.SignJWT(ctx, req)
}

// WatchJWTKeys implements [ca.JWTSigner]. It goes on with the next client.
func (j *jwtSVIDs) WatchJWTKeys(ctx context.Context, changed func(jwks []byte) error) error {
	for {
		from, replaced := j.now()
		err := until(ctx, replaced, func(ctx context.Context) error { return from.WatchJWTKeys(ctx, changed) })
		select {
		case <-ctx.Done():
			return err
		case <-replaced:
		default:
			return err
		}
	}
}

// until calls f with a context that also ends when over is closed.
func until(ctx context.Context, over <-chan struct{}, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return f(ctx)
}

// removed is the client of a provider that is not configured any more, until it is again.
type removed struct{}

func (removed) SignJWT(context.Context, ca.JWTRequest) (ca.Token, error) {
	return "", ca.Errorf(ca.Unavailable, "the provider was removed from the configuration")
}

func (removed) WatchJWTKeys(ctx context.Context, _ func([]byte) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// token reads the token anew if its authority was replaced meanwhile: another one must not get it.
func (j *jwtSVIDs) token(ctx context.Context) (bearer ca.Bearer, err error) {
	for {
		from, replaced := j.now()
		if from.tokens.Token == nil {
			return ca.Bearer{}, nil
		}
		bearer, err = from.tokens.Token(ctx)
		select {
		case <-replaced:
		default:
			return bearer, err
		}
	}
}

func (j *jwtSVIDs) rejected(token ca.Token) {
	if from, _ := j.now(); from.tokens.TokenRejected != nil {
		from.tokens.TokenRejected(token)
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
