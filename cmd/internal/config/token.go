package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/internal/host/reference"
	"github.com/countersign-dev/countersign/sdk/token"
)

// Token sets the source of the token that is sent with each request; exchange swaps it for
// another token first.
type Token struct {
	// TokenSource is the only source. Sources are several: the next one is used if one
	// fails or has an expired token.
	TokenSource
	Sources []TokenSource `json:"sources"`
	// Exchange are the steps that swap the token, in order. Default: none.
	Exchange []Exchange `json:"exchange"`
}

// TokenSource is a file, a variable, a command or Google's metadata server.
type TokenSource struct {
	// File is read for each request.
	File string `json:"file"`
	// Optional allows File to be missing: requests then carry no token. Default: false.
	Optional bool `json:"optional"`
	// Env is the name of a variable in the agent's environment.
	Env string `json:"env"`
	// Command is the absolute path of a program that prints the token, or an ExecCredential as
	// kubectl's plugins do, and its arguments. It has 30s, and of the agent's variables only PATH,
	// HOME, TMPDIR and LANG; no shell is used.
	Command []string `json:"command"`
	GCE     GCE      `json:"gce"`
}

// GCE is the metadata server of Google Compute Engine.
type GCE struct {
	Audience string `json:"audience"`
}

// Exchange is one step: by the provider itself, or at a URL according to RFC 8693.
type Exchange struct {
	// Provider leaves the exchange to the provider. Default: false.
	Provider bool `json:"provider"`
	ExchangeServer
	Audience string   `json:"audience"`
	Resource string   `json:"resource"`
	Scopes   []string `json:"scopes"`
	// SubjectType is the type of the token to swap. Default: a JWT; after another step, an
	// access token.
	SubjectType   string `json:"subject_token_type"`
	RequestedType string `json:"requested_token_type"`
}

// ExchangeServer is a token endpoint, and how the agent authenticates to it.
type ExchangeServer struct {
	// URL is https; with AllowLoopbackHTTP also http to a loopback address.
	URL               string `json:"url"`
	AllowLoopbackHTTP bool   `json:"allow_loopback_http"`
	// RootFile is PEM. Default: the system's roots.
	RootFile string         `json:"root_file"`
	Client   ExchangeClient `json:"client"`
	// ActorFile has the actor token, a JWT. Default: none.
	ActorFile string `json:"actor_file"`
}

// ExchangeClient authenticates by a secret or by a certificate.
type ExchangeClient struct {
	ID         string `json:"id"`
	SecretFile string `json:"secret_file"`
	CertFile   string `json:"cert_file"`
	KeyFile    string `json:"key_file"`
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
	if name := entry.Token.Env; name != "" && c.lookupEnv != nil && !reference.IsSet(name, c.lookupEnv) {
		c.say(p, path+".token.env", name, "this variable is not set in the program's environment, or empty")
	}
	completeExchange(entry)
}

// completeExchange makes a provider that can exchange tokens the last step.
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
	return t.File != "" || t.Env != "" || len(t.Command) > 0 || isSet(t.GCE) || len(t.Sources) > 0
}

// check lets an exchange stand alone where streams bring tokens.
func (t Token) check(p *problems, path string, ofStreams bool) {
	switch {
	case t.IsSet() && len(t.Sources) > 0:
		p.add(fmt.Errorf("%s has both a source of its own and a list of sources: move the source into the list", path))
	case !t.IsSet() && len(t.Sources) == 0 && len(t.Exchange) > 0 && !ofStreams:
		p.add(fmt.Errorf("%s.exchange has no token to exchange: set file, env, command or gce", path))
	}
	if t.IsSet() {
		t.TokenSource.check(p, path)
	}
	for i, source := range t.Sources {
		source.check(p, fmt.Sprintf("%s.sources.%d", path, i))
	}
	for i, step := range t.Exchange {
		p.check(step.fault(fmt.Sprintf("%s.exchange.%d", path, i)))
	}
}

func (s TokenSource) check(p *problems, path string) {
	n := 0
	for _, set := range []bool{s.File != "", s.Env != "", len(s.Command) > 0, isSet(s.GCE)} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		p.add(fmt.Errorf("%s has %d sources of a token: set exactly one of file, env, command and gce", path, n))
	case s.Optional && s.File == "":
		p.add(fmt.Errorf("%s.optional is true: only a file can be optional", path))
	case len(s.Command) > 0 && !filepath.IsAbs(s.Command[0]):
		p.add(fmt.Errorf("%s.command begins with %.256q: write the program's absolute path", path, s.Command[0]))
	case isSet(s.GCE) && s.GCE.Audience == "":
		p.say(path+".gce.audience", "not set", "", "write the audience of the token")
	}
}

func (e Exchange) fault(path string) error {
	switch {
	case e.Provider && isSet(e.ExchangeServer):
		return fmt.Errorf("%s has provider and url: remove one of them with its settings", path)
	case !e.Provider && e.URL == "":
		return fmt.Errorf("%s.url is not set: write the token endpoint, or provider: true", path)
	}
	return nil
}
