// Package jwtsvid (experimental) gets JWT-SVIDs from an authority that signs them. A [Source]
// verifies each one before a caller gets it, keeps it until half of its life is over, and follows
// the authority's keys: [New] starts it, [Source.Fetch] returns a token, [Source.Validate] judges
// those of others. It is what sdk/workloadapi serves JWT-SVIDs from. One goroutine watches the
// keys.
//
// The standard: https://github.com/spiffe/spiffe/blob/main/standards/JWT-SVID.md
package jwtsvid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/jws"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/internal/tokensource"
	"github.com/countersign-dev/countersign/sdk/trace"
)

const (
	maxAudiences = 64
	maxAudience  = 2048 // bytes
	// maxAllAudiences bounds them together, in JSON: a token with more does not fit into 16 KiB, and
	// the authority's failure to make it would count against all callers.
	maxAllAudiences = 8 << 10
)

// kind is that of JWT-SVIDs. Their keys are served without a use: plain JOSE libraries do not know
// "jwt-svid".
var kind = tokensource.Kind{
	Name: "JWT-SVID", Keys: "JWT keys", Span: "jwt_svid.issue", Types: []string{"JWT", "JOSE", ""}, ParseKeys: jws.ParseKeys,
}

// Config describes a [Source].
type Config struct {
	// Signer signs and publishes its keys. Required.
	Signer ca.JWTSigner
	// Audiences are those that callers may ask for: a whole one, or the beginning of one
	// followed by *, as in "https://*". Required.
	Audiences []string
	// TTL is the lifetime to ask for: 30 seconds to 1 hour. Default: 5 minutes.
	TTL time.Duration
	// Token returns the credential for the next request, and TokenRejected receives one that
	// the authority rejected, before Token is called again. Default: no credential.
	Token         func(context.Context) (ca.Bearer, error)
	TokenRejected func(ca.Token)
	// Tracer has a trace for each token that the authority is asked for. Default: none.
	Tracer trace.Tracer
	// Now is the wall clock. Default: time.Now.
	Now func() time.Time
	// Log receives no token. Default: [slog.Default].
	Log *slog.Logger
}

// check validates the configuration and returns it with defaults applied.
func (c Config) check() (Config, error) {
	if c.Signer == nil {
		return c, errors.New("jwtsvid: Config.Signer is nil")
	}
	if err := CheckTTL(c.TTL); err != nil {
		return c, fmt.Errorf("jwtsvid: the TTL is %s: %w", c.TTL, err)
	}
	c.TTL = cmp.Or(c.TTL, tokensource.DefaultTTL)
	if err := CheckAudiences(c.Audiences); err != nil {
		return c, fmt.Errorf("jwtsvid: %w", err)
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	return c, nil
}

// CheckTTL returns an error if a lifetime may not be asked for. Zero is the default.
func CheckTTL(ttl time.Duration) error { return tokensource.CheckTTL(ttl) }

// CheckAudiences returns an error if these audiences are invalid in [Config].
func CheckAudiences(rule []string) error {
	if len(rule) == 0 {
		return errors.New("no audience is allowed; name the services that tokens are for")
	}
	for _, audience := range rule {
		if star := strings.IndexByte(audience, '*'); !isAudience(audience) || star >= 0 && star != len(audience)-1 {
			return fmt.Errorf("the audience %.256q is not 1 to %d printable bytes with * at the end only", audience, maxAudience)
		}
	}
	return nil
}

func isAudience(text string) bool {
	return text != "" && len(text) <= maxAudience && !strings.ContainsFunc(text, unicode.IsControl)
}

// Source holds JWT-SVIDs and the authority's keys. Its methods are safe for concurrent use.
type Source struct {
	cfg     Config
	tokens  *tokensource.Source
	refused atomic.Int64 // requests for audiences that are not allowed
}

// New starts to follow the authority's keys. Call [Source.Close].
func New(cfg Config) (*Source, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s := &Source{cfg: cfg}
	s.tokens = tokensource.New(tokensource.Config{
		Kind: kind, Sign: s.sign, Watch: cfg.Signer.WatchJWTKeys, Check: checkReply,
		TTL: cfg.TTL, Token: cfg.Token, TokenRejected: cfg.TokenRejected, Tracer: cfg.Tracer, Now: cfg.Now, Log: cfg.Log,
	})
	return s, nil
}

// Close ends the watch and the calls in flight and waits for them. It may be called twice.
func (s *Source) Close() error { return s.tokens.Close() }

// Fetch returns a JWT-SVID of the SPIFFE ID for these audiences, which have to be allowed. Of
// several callers for the same, one call goes to the authority; while that is away, a token
// is given out until it ends. One holder has four a second signed, beside 200 at once. Errors are a
// [*ca.Error].
func (s *Source) Fetch(ctx context.Context, id string, audiences []string) (ca.Token, error) {
	o, err := s.order(id, audiences)
	if err != nil {
		return "", err
	}
	got, err := s.tokens.Fetch(ctx, o)
	return got.Token, err
}

func (s *Source) sign(ctx context.Context, o tokensource.Order, credential ca.Token) (got tokensource.Reply, err error) {
	got.Token, err = s.cfg.Signer.SignJWT(ctx, ca.JWTRequest{
		ID: uuid.NewString(), SubjectID: o.ID, Audiences: append([]string(nil), o.Audiences...), TTL: s.cfg.TTL, Token: credential,
	})
	return got, err
}

func checkReply(o tokensource.Order, _ tokensource.Reply, c tokensource.Claims, _ []byte) error {
	if audiences := slices.Compact(slices.Sorted(slices.Values(c.Audience))); !slices.Equal(audiences, o.Audiences) {
		return fmt.Errorf("its audiences are [%s], not those asked for", text.Clean(strings.Join(audiences, " ")))
	}
	return nil
}

// Retry ends all pauses after failures. Call it when the authority, its settings or the credential have
// changed.
func (s *Source) Retry() { s.tokens.Retry() }

// Keys returns the public keys, a JWK set that must not be modified: nil while they are not known,
// and an empty set if the authority signs no JWT-SVIDs.
func (s *Source) Keys() []byte { return s.tokens.Keys() }

// Watch calls notify after each change of Keys, until stop. notify must not block.
func (s *Source) Watch(notify func()) (stop func()) { return s.tokens.Watch(notify) }

// order checks a request against the rule. An error is [ca.ErrInvalid] or [ca.ErrDenied].
func (s *Source) order(id string, audiences []string) (tokensource.Order, error) {
	if n := len(audiences); n == 0 || n > maxAudiences {
		return tokensource.Order{}, ca.Errorf(ca.Invalid, "a JWT-SVID has 1 to %d audiences, not %d", maxAudiences, n)
	}
	size := 0
	for _, audience := range audiences {
		size += sizeInJSON(audience)
		switch {
		case size > maxAllAudiences:
			return tokensource.Order{}, ca.Errorf(ca.Invalid, "the audiences have more than %d bytes together", maxAllAudiences)
		case !isAudience(audience):
			return tokensource.Order{}, ca.Errorf(ca.Invalid, "the audience %.256q is not 1 to %d printable bytes", audience, maxAudience)
		case !slices.ContainsFunc(s.cfg.Audiences, func(allowed string) bool { return allows(allowed, audience) }):
			s.refused.Add(1)
			return tokensource.Order{}, ca.Errorf(ca.Denied, "no JWT-SVID is given for the audience %.256q", audience)
		}
	}
	return tokensource.Order{ID: id, Audiences: slices.Compact(slices.Sorted(slices.Values(audiences)))}, nil
}

// sizeInJSON returns the most bytes that an encoder makes of a string: some write \uXXXX for all
// that is not plain.
func sizeInJSON(text string) (size int) {
	for _, c := range []byte(text) {
		if c < 0x80 && !strings.ContainsRune(`"\/<>&`, rune(c)) {
			size++
		} else {
			size += len(`\u0000`)
		}
	}
	return size + len(`"",`)
}

func allows(rule, audience string) bool {
	if begin, open := strings.CutSuffix(rule, "*"); open {
		return strings.HasPrefix(audience, begin)
	}
	return rule == audience
}
