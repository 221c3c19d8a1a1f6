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
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sync/singleflight"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/trace"
)

const (
	defaultTTL     = 5 * time.Minute
	minTTL, maxTTL = 30 * time.Second, time.Hour

	maxAudiences = 64
	maxAudience  = 2048 // bytes
	maxToken     = 16 << 10
	// maxAllAudiences bounds them together, in JSON: a token with more does not fit into maxToken, and
	// the authority's failure to make it would count against all callers.
	maxAllAudiences = 8 << 10
	// Calls of the authority at the same time, for different identities or audiences.
	maxCalls    = 64
	callTimeout = 30 * time.Second
)

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
	c.TTL = cmp.Or(c.TTL, defaultTTL)
	switch {
	case c.Signer == nil:
		return c, errors.New("jwtsvid: Config.Signer is nil")
	case c.TTL < minTTL || c.TTL > maxTTL:
		return c, fmt.Errorf("jwtsvid: the TTL is %s: must be %s to %s", c.TTL, minTTL, maxTTL)
	}
	if err := CheckAudiences(c.Audiences); err != nil {
		return c, fmt.Errorf("jwtsvid: %w", err)
	}
	if c.Token == nil {
		c.Token = func(context.Context) (ca.Bearer, error) { return ca.Bearer{}, nil }
	}
	if c.TokenRejected == nil {
		c.TokenRejected = func(ca.Token) {}
	}
	if c.Now == nil {
		c.Now = clock.Wall
	}
	c.Log = loglimit.Limit(cmp.Or(c.Log, slog.Default()))
	return c, nil
}

// CheckTTL returns an error if a lifetime may not be asked for. Zero is the default.
func CheckTTL(ttl time.Duration) error {
	if ttl != 0 && (ttl < minTTL || ttl > maxTTL) {
		return fmt.Errorf("must be %s to %s", minTTL, maxTTL)
	}
	return nil
}

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
	repeats loglimit.Repeats
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	flights singleflight.Group
	slots   chan struct{}

	published atomic.Pointer[published]
	missing   atomic.Bool // the authority lacks the ability

	mu         sync.Mutex
	held       map[string]*holding // by order.key
	outage     outage              // of the authority, whatever it is asked for
	identities map[string]*outage  // by SPIFFE ID
	record     record
	budgets    map[string]*loglimit.Bucket // by holder
	signing    map[string]int              // calls in flight, by order.key
	watchers   watchers.Set[func()]
	changed    chan struct{} // closed when the keys change, and replaced
}

// New starts to follow the authority's keys. Call [Source.Close].
func New(cfg Config) (*Source, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg: cfg, slots: make(chan struct{}, maxCalls), held: map[string]*holding{}, identities: map[string]*outage{}, budgets: map[string]*loglimit.Bucket{}, signing: map[string]int{}, changed: make(chan struct{}), record: newRecord(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.follow)
	return s, nil
}

// Close ends the watch and the calls in flight and waits for them. It may be called twice.
func (s *Source) Close() error {
	s.mu.Lock() // see renew
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

// order is what a token is asked for.
type order struct {
	id        string
	audiences []string // sorted, each once
}

func (o order) key() string { return o.id + "\x00" + strings.Join(o.audiences, "\x00") }

// order checks a request against the rule. An error is [ca.ErrInvalid] or [ca.ErrDenied].
func (s *Source) order(id string, audiences []string) (order, error) {
	if n := len(audiences); n == 0 || n > maxAudiences {
		return order{}, ca.Errorf(ca.Invalid, "a JWT-SVID has 1 to %d audiences, not %d", maxAudiences, n)
	}
	size := 0
	for _, audience := range audiences {
		size += sizeInJSON(audience)
		switch {
		case size > maxAllAudiences:
			return order{}, ca.Errorf(ca.Invalid, "the audiences have more than %d bytes together", maxAllAudiences)
		case !isAudience(audience):
			return order{}, ca.Errorf(ca.Invalid, "the audience %.256q is not 1 to %d printable bytes", audience, maxAudience)
		case !slices.ContainsFunc(s.cfg.Audiences, func(allowed string) bool { return allows(allowed, audience) }):
			s.mu.Lock()
			s.record.refused++
			s.mu.Unlock()
			return order{}, ca.Errorf(ca.Denied, "no JWT-SVID is given for the audience %.256q", audience)
		}
	}
	return order{id, slices.Compact(slices.Sorted(slices.Values(audiences)))}, nil
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
