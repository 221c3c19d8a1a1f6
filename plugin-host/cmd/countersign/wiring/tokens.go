package wiring

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/token"
	"github.com/countersign-dev/countersign/sdk/token/exchange"
)

// Tokens are those of one provider: its sources in order, exchanged step by step.
type Tokens interface {
	Token(ctx context.Context) (ca.Bearer, error)
	Rejected(t ca.Token)
}

// Book has the tokens of each provider, so that a reload that leaves an entry as it
// is leaves what was exchanged for it, too. Of another entry, or of one that is gone,
// nothing is kept. It is for one goroutine at a time; what it gave out is safe for any
// number.
type Book struct {
	log     *slog.Logger
	byEntry map[string]booked
}

type booked struct {
	entry  config.Provider
	client ca.Client
	tokens Tokens // nil: the provider gets none of the agent's
	steps  []token.Exchanged
}

// NewBook returns an empty one.
func NewBook(log *slog.Logger) *Book {
	return &Book{log: log, byEntry: map[string]booked{}}
}

// of returns an entry's tokens. The whole entry has to be the same, as a provider
// exchanges by its settings.
func (b *Book) of(entry config.Provider, client ca.Client) (Tokens, error) {
	if known, ok := b.byEntry[entry.Name]; ok && known.client == client && reflect.DeepEqual(known.entry, entry) {
		return known.tokens, nil
	}
	delete(b.byEntry, entry.Name)
	steps, err := stepsOf(entry, client, b.log)
	if err != nil {
		return nil, err
	}
	made := tokensOf(entry, steps, b.log)
	b.byEntry[entry.Name] = booked{entry, client, made, steps}
	return made, nil
}

// Steps returns the agent's own tokens for the entry of that name, nil where there are
// none, and the exchanges that they go through, without a source: for tokens that streams
// bring. What an exchange kept is the same in both.
func (b *Book) Steps(name string) (own Tokens, steps []token.Exchanged) {
	known := b.byEntry[name]
	return known.tokens, known.steps
}

// Keep forgets the tokens of all other entries.
func (b *Book) Keep(entries []config.Provider) {
	maps.DeleteFunc(b.byEntry, func(name string, _ booked) bool {
		return !slices.ContainsFunc(entries, func(entry config.Provider) bool { return entry.Name == name })
	})
}

// tokensOf returns nil for a provider that gets no token of the agent's.
func tokensOf(entry config.Provider, steps []token.Exchanged, log *slog.Logger) Tokens {
	sources := entry.TokenSources()
	if len(sources) == 0 {
		return nil
	}
	ordered := token.Ordered{Log: log.With("provider", entry.Name)}
	for _, s := range sources {
		ordered.Sources = append(ordered.Sources, sourceOf(s))
	}
	if chained := Through(ordered, steps); chained != nil {
		return *chained
	}
	return ordered
}

// Through chains exchanges behind a source; nil where there are none.
func Through(source token.Source, steps []token.Exchanged) (last *token.Exchanged) {
	for _, step := range steps {
		step.Source = source
		source, last = step, &step
	}
	return last
}

// stepsOf returns an entry's exchanges, without their sources. client is asked where
// one is left to the provider.
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
		steps = append(steps, token.Exchanged{Request: req, Cache: token.NewCache(exchanger, token.CacheOptions{Margin: step.Margin.Duration, Log: log})})
	}
	return steps, nil
}

func sourceOf(s config.TokenSource) token.Source {
	switch {
	case s.Env != "":
		return token.Env{Name: s.Env, Lookup: os.LookupEnv}
	case len(s.Command.Args) > 0:
		return token.Command{Args: s.Command.Args, Env: CommandEnv(s.Command.Env), Raw: s.Command.Raw, Timeout: s.Command.Timeout.Duration}
	case s.GCE.Audience != "":
		return token.Metadata{Audience: s.GCE.Audience, Account: s.GCE.Account}
	}
	return token.File{Path: s.File, Optional: s.Optional}
}

// CommandEnv has what a program needs to run and nothing else of the agent's: its
// variables may have tokens.
func CommandEnv(own map[string]string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value) // of a name twice the last one counts
	}
	return env
}

func exchangerOf(step config.Exchange, client ca.Client) (ca.TokenExchanger, error) {
	if step.Provider {
		if exchanger, ok := client.(ca.TokenExchanger); ok {
			return exchanger, nil
		}
		return nil, ca.Errorf(ca.Unimplemented, "the provider exchanges no tokens")
	}
	own := exchange.Config{
		URL: step.URL, AllowLoopbackHTTP: step.AllowLoopbackHTTP, RootFile: step.RootFile, ActorType: step.ActorType, Timeout: step.Timeout.Duration,
		Auth: exchange.Auth{
			ClientID: step.Client.ID, SecretFile: step.Client.SecretFile, SecretInBody: step.Client.SecretInBody,
			CertFile: step.Client.CertFile, KeyFile: step.Client.KeyFile,
		},
	}
	if step.Actor.IsSet() {
		own.Actor = token.Ordered{Sources: []token.Source{sourceOf(step.Actor)}}
	}
	return exchange.New(own)
}
