package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/istiocompat"
	"github.com/countersign-dev/countersign/sdk/token"
)

// Token says where the token comes from that travels with each request to a
// provider, and what it is exchanged for before.
type Token struct {
	// TokenSource is the only source; or Sources are several, the next of which is used
	// where one fails or has a token that has expired.
	TokenSource
	Sources []TokenSource `json:"sources"`
	// Exchange is what is done with it, one step after the other. Default: nothing.
	Exchange []Exchange `json:"exchange"`
}

// TokenSource is one of a file, a variable, a command and Google's metadata server.
type TokenSource struct {
	// File is read for each request.
	File string `json:"file"`
	// Optional takes a file that is not there for no token. Default: false.
	Optional bool `json:"optional"`
	// Env is the name of a variable of the agent's.
	Env     string  `json:"env"`
	Command Command `json:"command"`
	GCE     GCE     `json:"gce"`
}

// Command is a program that prints a token.
type Command struct {
	// Args are the program, an absolute path, and its arguments; there is no shell.
	Args []string `json:"args"`
	// Env is added to PATH, HOME, TMPDIR and LANG, all that it gets of the agent's.
	Env map[string]string `json:"env"`
	// Raw takes the output for the token. Default: an ExecCredential, as kubectl's
	// plugins print.
	Raw bool `json:"raw"`
	// Timeout ends it. Default: 30s.
	Timeout Duration `json:"timeout"`
}

// GCE is the metadata server of Google's Compute Engine.
type GCE struct {
	Audience string `json:"audience"`
	Account  string `json:"account"` // the service account. Default: default.
}

// Exchange is one step: by the provider itself, or at a URL by RFC 8693.
type Exchange struct {
	// Provider leaves it to the provider, with its own settings. Default: false.
	Provider bool `json:"provider"`
	ExchangeServer
	Audience string   `json:"audience"`
	Resource string   `json:"resource"`
	Scopes   []string `json:"scopes"`
	// SubjectType is that of the token so far. Default: a JWT; after another step an
	// access token.
	SubjectType   string `json:"subject_token_type"`
	RequestedType string `json:"requested_token_type"`
	// Margin is how long before its end a token is exchanged anew. Default: 5m.
	Margin Duration `json:"margin"`
}

// ExchangeServer is a token endpoint, and how the agent makes itself known there.
type ExchangeServer struct {
	// URL is https; http of a loopback address with AllowLoopbackHTTP.
	URL               string `json:"url"`
	AllowLoopbackHTTP bool   `json:"allow_loopback_http"`
	// RootFile is PEM. Default: the system's roots.
	RootFile string         `json:"root_file"`
	Client   ExchangeClient `json:"client"`
	// Actor is the source of the actor's token. Default: none.
	Actor     TokenSource `json:"actor"`
	ActorType string      `json:"actor_token_type"` // Default: a JWT.
	// Timeout ends a call. Default: 5s.
	Timeout Duration `json:"timeout"`
}

// ExchangeClient authenticates by a secret or by a certificate.
type ExchangeClient struct {
	ID           string `json:"id"`
	SecretFile   string `json:"secret_file"`
	SecretInBody bool   `json:"secret_in_body"` // client_secret_post. Default: in the header.
	CertFile     string `json:"cert_file"`
	KeyFile      string `json:"key_file"`
}

// TokenSources returns the sources in order; none if the provider gets no token.
func (p Provider) TokenSources() []TokenSource {
	if p.Token.IsSet() {
		return []TokenSource{p.Token.TokenSource}
	}
	return p.Token.Sources
}

// IsSet reports whether there is a source; of a [Token], whether it has one of its own.
func (s TokenSource) IsSet() bool { return isSet(s) }

func isSet(v any) bool { return !reflect.ValueOf(v).IsZero() }

// completeToken fills in the default file and the provider's own exchange, and checks the
// rest.
func (c *Config) completeToken(p *problems, entry *Provider, path string) {
	if !entry.Token.hasSource() && len(entry.Token.Exchange) == 0 {
		entry.Token.File = istiocompat.TokenFile(entry.Provider, entry.Settings)
	}
	entry.Token.check(p, path+".token", c.Workloads.VerifiedBy != "")
	completeExchange(entry)
}

// completeExchange makes a provider that knows how to exchange tokens the last step.
func completeExchange(entry *Provider) {
	steps := entry.Token.Exchange
	if !istiocompat.ExchangesItself(entry.Provider, entry.Settings) || slices.ContainsFunc(steps, func(e Exchange) bool { return e.Provider }) {
		return
	}
	step := Exchange{Provider: true, SubjectType: token.TypeJWT}
	if n := len(steps); n > 0 && steps[n-1].RequestedType != "" {
		step.SubjectType = steps[n-1].RequestedType
	}
	entry.Token.Exchange = append(slices.Clip(steps), step)
}

func (t Token) hasSource() bool {
	return t.File != "" || t.Env != "" || isSet(t.Command) || isSet(t.GCE) || len(t.Sources) > 0
}

// check lets an exchange stand alone where streams bring tokens.
func (t Token) check(p *problems, path string, ofStreams bool) {
	switch {
	case t.IsSet() && len(t.Sources) > 0:
		p.add(fmt.Errorf("%s has a source of its own and a list of sources: put it into the list", path))
	case !t.IsSet() && len(t.Sources) == 0 && len(t.Exchange) > 0 && !ofStreams:
		p.add(fmt.Errorf("%s.exchange has nothing to exchange: set file, env, command or gce beside it", path))
	}
	if t.IsSet() {
		t.TokenSource.check(p, path)
	}
	for i, source := range t.Sources {
		source.check(p, fmt.Sprintf("%s.sources.%d", path, i))
	}
	for i, step := range t.Exchange {
		step.check(p, fmt.Sprintf("%s.exchange.%d", path, i))
	}
}

func (s TokenSource) check(p *problems, path string) {
	n := 0
	for _, set := range []bool{s.File != "", s.Env != "", isSet(s.Command), isSet(s.GCE)} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		p.add(fmt.Errorf("%s has %d sources of a token: set one of file, env, command and gce", path, n))
	case s.Optional && s.File == "":
		p.add(fmt.Errorf("%s.optional is true: only a file may be missing", path))
	case isSet(s.Command):
		p.check(s.Command.fault(path + ".command"))
	case isSet(s.GCE) && s.GCE.Audience == "":
		p.say(path+".gce.audience", "not set", "", "write whom the token is for")
	}
}

func (c Command) fault(path string) error {
	switch {
	case len(c.Args) == 0:
		return fmt.Errorf("%s.args is not set: write the program and its arguments as a list", path)
	case !filepath.IsAbs(c.Args[0]):
		return fmt.Errorf("%s.args begins with %q: write the program's absolute path", path, clip(c.Args[0]))
	case c.Timeout.Duration < 0:
		return fmt.Errorf("%s.timeout is %s: write more than 0s", path, c.Timeout)
	}
	return nil
}

func (e Exchange) check(p *problems, path string) {
	p.check(e.fault(path))
	if e.Actor.IsSet() {
		e.Actor.check(p, path+".actor")
	}
}

func (e Exchange) fault(path string) error {
	switch {
	case e.Provider && isSet(e.ExchangeServer):
		return fmt.Errorf("%s is left to the provider: remove provider, or url and what goes with it", path)
	case !e.Provider && e.URL == "":
		return fmt.Errorf("%s.url is not set: write the token endpoint, or provider: true", path)
	case e.Margin.Duration < 0:
		return fmt.Errorf("%s.margin is %s: write more than 0s", path, e.Margin)
	case e.ActorType != "" && !e.Actor.IsSet():
		return errors.New(path + ".actor_token_type is set: there is no actor that it is about")
	}
	return nil
}
