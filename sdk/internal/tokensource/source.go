// Package tokensource gets signed tokens of SPIFFE IDs from an authority: a [Source] verifies each
// one before it is used, keeps it until half of its life is over, follows the authority's keys and
// pauses after failures. sdk/jwtsvid and sdk/witsvid are built on it; a [Kind] has what distinguishes
// them. [New] starts one goroutine, which watches the keys.
package tokensource

import (
	"cmp"
	"context"
	"crypto"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/loglimit"
	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/trace"
)

const (
	// Calls of the authority at the same time, for different orders.
	maxCalls    = 64
	callTimeout = 30 * time.Second
)

// Config describes a [Source]. All but Token, TokenRejected, Tracer, Now and Log is required.
type Config struct {
	Kind Kind
	// Sign asks the authority, and Watch follows its keys until ctx ends.
	Sign  func(ctx context.Context, o Order, credential ca.Token) (Reply, error)
	Watch func(ctx context.Context, changed func(jwks []byte) error) error
	// Check judges the claims of a reply whose signature is verified.
	Check func(o Order, r Reply, c Claims, payload []byte) error
	// TTL is the lifetime that Sign asks for.
	TTL time.Duration
	// Token returns the credential for the next request, and TokenRejected receives one that the
	// authority rejected.
	Token         func(context.Context) (ca.Bearer, error)
	TokenRejected func(ca.Token)
	Tracer        trace.Tracer
	Now           func() time.Time
	Log           *slog.Logger
}

// withDefaults returns the configuration with defaults applied.
func (c Config) withDefaults() Config {
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
	return c
}

// Order is what a token is asked for.
type Order struct {
	ID        string   // SPIFFE ID
	Audiences []string // sorted, each once
}

func (o Order) key() string { return o.ID + "\x00" + strings.Join(o.Audiences, "\x00") }

// Reply is an authority's token, and the private key that it is bound to, if it is.
type Reply struct {
	Token ca.Token
	Key   crypto.Signer
	Ends  time.Time // once it is verified
}

// Source holds tokens and the authority's keys. Its methods are safe for concurrent use.
type Source struct {
	cfg     Config
	repeats loglimit.Repeats
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	flights singleflight.Group
	slots   chan struct{}

	published atomic.Pointer[Published]
	missing   atomic.Bool // the authority lacks the ability

	mu         sync.Mutex
	held       map[string]*holding // by Order.key
	outage     outage              // of the authority, whatever it is asked for
	identities map[string]*outage  // by SPIFFE ID
	record     record
	budgets    map[string]*loglimit.Bucket // by holder
	signing    map[string]int              // calls in flight, by Order.key
	maintained map[string]int              // calls of Maintain, by Order.key
	watchers   watchers.Set[func()]
	changed    chan struct{} // closed when the keys change or pauses end, and replaced
	retries    chan struct{} // capacity one: the pause of follow ends
}

// New starts to follow the authority's keys. Call [Source.Close].
func New(cfg Config) *Source {
	s := &Source{
		cfg: cfg.withDefaults(), slots: make(chan struct{}, maxCalls), held: map[string]*holding{}, identities: map[string]*outage{}, budgets: map[string]*loglimit.Bucket{}, signing: map[string]int{}, maintained: map[string]int{}, changed: make(chan struct{}), retries: make(chan struct{}, 1), record: newRecord(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.follow)
	return s
}

// Close ends the watch and the calls in flight and waits for them. It may be called twice.
func (s *Source) Close() error {
	s.mu.Lock() // see renew
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}
