// Package crowd serves many identities from one agent: each stream has a credential of
// its own and gets the certificate of the identity that was verified by it. [New] makes
// a [Set], [Set.Join] takes a stream in and returns the caller that the Set, a
// [secret.Source], knows it by.
//
// What a token says of its owner is a claim. It joins an identity only after a
// [Verifier] verified that very token, or after the authority signed a request with it;
// the identity is then the SPIFFE ID in the certificate that came back.
//
// docs/decisions/0011-many-identities.md says why it is made as it is.
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

// Set keeps one key pair for each identity and rotates it while somebody is there
// for it. One goroutine keeps the time of all, and as many make requests as may be under
// way at once. All methods may be called by any goroutine.
type Set struct {
	cfg     Config
	offset  jumpWatch
	rootsAt string // the bundle that certificates have to lead to
	unwatch func()

	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{}
	tasks   sync.WaitGroup
	flights chan *flight
	signers []*secret.Signer // fixed until the end
	checks  checks           // of tokens, by the Verifier

	mu          sync.Mutex // held for moments, and over none but own code; see unlock
	outbox      []func()
	sessions    map[uint64]*session
	last        uint64 // the last session's number
	credentials map[fingerprint]*credential
	entries     map[string]*entry // by SPIFFE ID
	nameless    int               // entries whose identity is not known yet
	deadlines   queue             // of all entries, by what is due
	ready       queue             // of those that are to be asked for, with an identity
	readyNew    queue             // the same, without one yet
	starts      int
	idle        []*secret.Signer // not in use
	strangers   map[process]int  // refused tokens that a process brought
	rootsMoved  bool
	counts      Counts
	quiet       quiet // of log lines
}

var _ secret.Source = (*Set)(nil)

// New checks the configuration and returns a Set of nobody. Close ends it; the
// Manager stays the caller's to close, after that.
func New(cfg Config) (*Set, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Set{
		cfg: cfg, offset: newJumpWatch(cfg.Now), rootsAt: cfg.Bundles[0], ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1),
		checks: newChecks(cfg.Limits.InFlight), sessions: map[uint64]*session{}, credentials: map[fingerprint]*credential{},
		entries: map[string]*entry{}, strangers: map[process]int{}, deadlines: queue{by: byDue}, ready: queue{by: byRank}, readyNew: queue{by: byRank},
	}
	for range cfg.Limits.InFlight {
		c.signers = append(c.signers, cfg.Manager.Signer(cfg.Certificate.Authorities[0]))
	}
	c.idle = slices.Clone(c.signers)
	c.flights = make(chan *flight, cfg.Limits.InFlight)
	c.unwatch, err = cfg.Manager.Watch(secret.Caller{}, c.rootsAt, func(string) { c.rootsHaveMoved() })
	if err != nil {
		cancel()
		c.closeSigners()
		return nil, fmt.Errorf("watch the trust bundle %q: %w", c.rootsAt, err)
	}
	c.tasks.Go(c.run)
	for range cfg.Limits.InFlight {
		c.tasks.Go(c.work)
	}
	return c, nil
}

// Close ends everything and returns when all is quiet; callers are told, and Peek then
// answers ErrClosed. Keys that it holds are overwritten. It may be called twice, and
// returns nil.
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

// Kick has what had failed tried again at once: call it when the authority's provider
// or settings have changed.
func (c *Set) Kick() {
	c.mu.Lock()
	defer c.unlock()
	for _, e := range c.deadlines.all() {
		if e.trouble != nil {
			e.trouble.kick()
			c.schedule(e)
		}
	}
}

// unlock releases the lock and then tells what is to be told: what a watcher, an
// observer or a log does is not known here.
func (c *Set) unlock() {
	out := c.outbox
	c.outbox = nil
	c.mu.Unlock()
	for _, tell := range out {
		tell()
	}
}

// say has something done once the lock is released.
func (c *Set) say(f func()) { c.outbox = append(c.outbox, f) }

func (c *Set) tell(e secret.Event) {
	e.Secret, e.Authority = c.cfg.Certificate.Name, c.cfg.Certificate.Authorities[0]
	c.say(func() { c.cfg.Observe(e) })
}

func (c *Set) now() time.Time { return c.cfg.Now().Round(0) } // the wall clock alone

func (c *Set) nudge() {
	select {
	case c.wake <- struct{}{}:
	default: // it will look, already
	}
}

func unknown(name string) error { return fmt.Errorf("secret %.256q: %w", name, secret.ErrUnknown) }

func notReady(name string) error { return fmt.Errorf("secret %.256q: %w", name, secret.ErrNotReady) }

var errNoIdentity = errors.New("nothing here says who a stream is: a Verifier, Claimed or Peer is needed")
