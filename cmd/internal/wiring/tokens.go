package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/internal/host/command"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
	"github.com/countersign-dev/countersign/sdk/token/exchange"
)

// Tokens is the token source of one provider: its configured sources, in order, behind its
// exchanges.
type Tokens interface {
	Token(ctx context.Context) (ca.Bearer, error)
	Rejected(t ca.Token)
}

// TokenCache keeps the tokens of each provider, so that a reload that leaves an entry
// unchanged keeps its exchanged tokens, too. Tokens of changed or removed entries are
// dropped. One goroutine uses it at a time; the Tokens it returns are safe for concurrent use.
type TokenCache struct {
	env     environ.Vars
	log     *slog.Logger
	byEntry map[string]cached
}

type cached struct {
	entry  config.Provider
	client ca.Client
	tokens Tokens // nil: the provider gets no token from the agent
	steps  []token.Exchanged
}

// NewTokenCache returns an empty cache, for a program with that environment.
func NewTokenCache(env environ.Vars, log *slog.Logger) *TokenCache {
	return &TokenCache{env: env, log: log, byEntry: map[string]cached{}}
}

// Clone returns a copy, in which a configuration can be tried: the tokens themselves are shared.
func (c *TokenCache) Clone() *TokenCache {
	return &TokenCache{env: c.env, log: c.log, byEntry: maps.Clone(c.byEntry)}
}

// of returns an entry's tokens. The whole entry must be unchanged, as a provider may exchange
// tokens by its settings.
func (c *TokenCache) of(entry config.Provider, client ca.Client) (Tokens, error) {
	if known, ok := c.byEntry[entry.Name]; ok && known.client == client && reflect.DeepEqual(known.entry, entry) {
		return known.tokens, nil
	}
	delete(c.byEntry, entry.Name)
	steps, err := stepsOf(entry, client, c.log)
	if err != nil {
		return nil, err
	}
	made := c.tokensOf(entry, steps)
	c.byEntry[entry.Name] = cached{entry, client, made, steps}
	return made, nil
}

// Steps returns the agent's own tokens for an entry, nil if it has none, and the entry's
// exchanges without a source, for the tokens of streams. Both share their cached results.
func (c *TokenCache) Steps(name string) (own Tokens, steps []token.Exchanged) {
	known := c.byEntry[name]
	return known.tokens, known.steps
}

// Keep drops the tokens of all other entries.
func (c *TokenCache) Keep(entries []config.Provider) {
	maps.DeleteFunc(c.byEntry, func(name string, _ cached) bool {
		return !slices.ContainsFunc(entries, func(entry config.Provider) bool { return entry.Name == name })
	})
}

// tokensOf returns nil for a provider that gets no token from the agent.
func (c *TokenCache) tokensOf(entry config.Provider, steps []token.Exchanged) Tokens {
	sources := entry.TokenSources()
	if len(sources) == 0 {
		return nil
	}
	ordered := token.Ordered{Log: c.log.With("provider", entry.Name)}
	for _, s := range sources {
		ordered.Sources = append(ordered.Sources, sourceOf(c.env, s))
	}
	if chained := Through(ordered, steps); chained != nil {
		return *chained
	}
	return ordered
}

// Through chains exchanges behind a source; nil if there are none.
func Through(source token.Source, steps []token.Exchanged) (last *token.Exchanged) {
	for _, step := range steps {
		step.Source = source
		source, last = step, &step
	}
	return last
}

// stepsOf returns an entry's exchanges, without their sources. Those of the provider itself
// use the client.
func stepsOf(entry config.Provider, client ca.Client, log *slog.Logger) ([]token.Exchanged, error) {
	var steps []token.Exchanged
	log = log.With("provider", entry.Name)
	for i, step := range entry.Token.Exchange {
		exchanger, err := exchangerOf(step, client)
		if err != nil {
			return nil, fmt.Errorf("providers.%s.token.exchange.%d: %w", entry.Name, i, err)
		}
		req := ca.TokenRequest{
			SubjectTokenType: step.SubjectType, Audience: step.Audience, Resource: step.Resource, Scopes: step.Scopes, RequestedType: step.RequestedType,
		}
		if i > 0 && req.SubjectTokenType == "" {
			req.SubjectTokenType = token.TypeAccessToken
		}
		steps = append(steps, token.Exchanged{Request: req, Cache: token.NewCache(exchanger, token.CacheOptions{Log: log})})
	}
	return steps, nil
}

func sourceOf(env environ.Vars, s config.TokenSource) token.Source {
	switch {
	case s.Env != "":
		return token.Env{Name: s.Env, Lookup: env.Lookup}
	case len(s.Command) > 0:
		return token.Command{Args: s.Command, Env: CommandEnv(env)}
	case s.GCE.Audience != "":
		return token.Metadata{Audience: s.GCE.Audience}
	}
	return token.File{Path: s.File, Optional: s.Optional}
}

// CommandEnv returns the few variables that a program needs.
func CommandEnv(env environ.Vars) []string { return command.MinimalEnv(env.Lookup) }

func exchangerOf(step config.Exchange, client ca.Client) (ca.TokenExchanger, error) {
	if step.Provider {
		if exchanger, ok := client.(ca.TokenExchanger); ok {
			return exchanger, nil
		}
		return nil, ca.Errorf(ca.Unimplemented, "the provider does not exchange tokens")
	}
	own := exchange.Config{
		URL: step.URL, AllowLoopbackHTTP: step.AllowLoopbackHTTP, RootFile: step.RootFile,
		Auth: exchange.Auth{
			ClientID: step.Client.ID, SecretFile: step.Client.SecretFile, CertFile: step.Client.CertFile, KeyFile: step.Client.KeyFile,
		},
	}
	if step.ActorFile != "" {
		own.Actor = token.File{Path: step.ActorFile}
	}
	return exchange.New(own)
}
