// Package identities (experimental) serves many identities from one agent: each stream has its
// own credential and gets the certificate of the identity verified by it. [New] makes a [Set];
// [Set.Join] admits a stream and returns its caller for the Set, which is a [secret.Source]. One
// goroutine schedules, a fixed pool sends requests; a lock guards all state.
//
// A token's claims are only claims. A token joins an identity only after a [Verifier] has
// verified that token or the authority has signed a request with it; the identity is then
// the SPIFFE ID in the issued certificate. docs/decisions/0011-many-identities.md gives
// the rationale.
package identities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// Set keeps one key pair for each identity and rotates it while the identity has streams.
// One goroutine schedules all rotations, and Limits.InFlight goroutines make the requests.
// All methods are safe for concurrent use.
type Set struct {
	cfg     Config
	rootsAt string // the bundle that certificates must chain to
	unwatch func()
	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{}
	tasks   sync.WaitGroup
	checks  *checks   // token verifications by the Verifier
	offset  jumpWatch // owned by run

	// mu guards the rest. It is held briefly, never over foreign code; see unlock.
	mu sync.Mutex
	callers
	requests
	renewalAdvice renewalAdvice
	rootsMoved    bool
	notices
}

// callers are the streams and what is known of them.
type callers struct {
	sessions    map[uint64]*session
	last        uint64 // number of the last session
	credentials map[fingerprint]*credential
	entries     map[string]*entry // by SPIFFE ID
	nameless    int               // number of entries without an identity yet
	deadlines   queue             // all entries by due time
	strangers   strangers         // tokens that the authority must vouch for
}

// requests are the entries to request a certificate for, and who requests it.
type requests struct {
	ready    queue // entries with an identity
	readyNew queue // entries without an identity yet
	starts   int
	idle     []*secret.Signer // not in use
	signers  []*secret.Signer // all of them; fixed until Close
	flights  chan *flight     // to the goroutines that request; has room for one per signer
}

// notices are what others get to know once the lock is released, and the figures.
type notices struct {
	outbox []func()
	counts Counts
	quiet  quiet // limits log lines
}

var _ secret.Source = (*Set)(nil)

// New checks cfg and returns an empty Set. Close stops it; the caller closes the Manager
// after that.
func New(cfg Config) (*Set, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Set{
		cfg: cfg, offset: newJumpWatch(cfg.Now), rootsAt: cfg.Bundles[0], ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1),
		checks: newChecks(cfg.Limits),
		callers: callers{
			sessions: map[uint64]*session{}, credentials: map[fingerprint]*credential{}, entries: map[string]*entry{},
			strangers: newStrangers(cfg.Limits), deadlines: queue{by: byDue},
		},
		requests: requests{ready: queue{by: byRank}, readyNew: queue{by: byRank}, flights: make(chan *flight, cfg.Limits.InFlight)},
	}
	for range cfg.Limits.InFlight {
		c.signers = append(c.signers, cfg.Manager.Signer(cfg.Certificate.Authorities[0]))
	}
	c.idle = slices.Clone(c.signers)
	c.renewalAdvice = renewalAdvice{signer: cfg.Manager.Signer(cfg.Certificate.Authorities[0]), wake: make(chan struct{}, 1)}
	c.signers = append(c.signers, c.renewalAdvice.signer)
	c.unwatch, err = cfg.Manager.Watch(secret.Caller{}, c.rootsAt, func(string) { c.rootsHaveMoved() })
	if err != nil {
		cancel()
		c.closeSigners()
		return nil, fmt.Errorf("watch the trust bundle %q: %w", c.rootsAt, err)
	}
	c.tasks.Go(c.run)
	c.tasks.Go(c.advise)
	for range cfg.Limits.InFlight {
		c.tasks.Go(c.work)
	}
	return c, nil
}

// Close stops all work and waits for it. It abandons an Exchange or a client that ignores
// its context after one second, and does not wait for a Verifier. It notifies callers; Peek
// then returns ErrClosed. Items that it returned stay valid. Close is idempotent and returns
// nil.
func (c *Set) Close() error {
	c.cancel()
	c.unwatch()
	c.tasks.Wait()
	c.mu.Lock()
	defer c.unlock()
	c.closeSigners()
	for _, e := range c.deadlines.all() {
		c.tellSessions(e)
		c.letGo(e)
	}
	return nil
}

func (c *Set) closeSigners() {
	for _, s := range c.signers {
		s.Close()
	}
	c.signers = nil
}

// Kick retries failed attempts at once. Call it when the authority's provider or settings
// have changed.
func (c *Set) Kick() {
	c.mu.Lock()
	defer c.unlock()
	silent := c.renewalAdvice.silent
	c.renewalAdvice.silent = false // its provider may be another
	for _, e := range c.deadlines.all() {
		e.rotation.Kick()
		if silent && e.item != nil {
			c.advisable(e, c.now())
		}
		if e.failure != nil || silent {
			c.schedule(e)
		}
	}
}

// unlock releases the lock and then sends the queued notices, as watchers, observers and
// logs are foreign code.
func (c *Set) unlock() {
	out := c.outbox
	c.outbox = nil
	c.mu.Unlock()
	for _, tell := range out {
		tell()
	}
}

// say queues f to run after the lock is released.
func (c *Set) say(f func()) { c.outbox = append(c.outbox, f) }

func (c *Set) tell(e secret.Event) {
	e.Secret, e.Authority = c.cfg.Certificate.Name, c.cfg.Certificate.Authorities[0]
	c.say(func() { c.cfg.Observe(e) })
}

func (c *Set) now() time.Time { return c.cfg.Now().Round(0) } // without the monotonic reading

func (c *Set) nudge() {
	select {
	case c.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// notReady gives no reason: the authority's message is for the operator, not for a stream.
func notReady(name string) error { return secret.NotReady(name, nil) }

var errNoIdentity = errors.New("no way to identify streams: set Verifier, Claimed or Peer")
