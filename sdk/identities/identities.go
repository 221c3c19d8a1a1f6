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
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/internal/schedule"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Set keeps one key pair for each identity and rotates it while the identity has streams.
// One goroutine schedules all rotations, and Limits.InFlight goroutines make the requests.
// All methods are safe for concurrent use.
type Set struct {
	cfg     Config
	rootsAt string // the bundle that certificates must chain to
	unwatch func()
	checks  *checks // token verifications by the Verifier

	// sched has the lock that guards the rest.
	sched *schedule.Scheduler[*entry]
	pool  *schedule.Pool[*entry]
	swept time.Time // when expired tokens were last removed
	callers
	rootsMoved bool
	counts     Counts
}

// callers are the streams and what is known of them.
type callers struct {
	sessions    map[uint64]*session
	last        uint64 // number of the last session
	credentials map[fingerprint]*credential
	entries     map[string]*entry // by SPIFFE ID
	nameless    int               // number of entries without an identity yet
	strangers   strangers         // tokens that the authority must vouch for
}

var _ secret.Source = (*Set)(nil)

// New checks cfg and returns an empty Set. Close stops it; the caller closes the Manager
// after that.
func New(cfg Config) (*Set, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	c := &Set{
		cfg: cfg, rootsAt: cfg.Bundles[0], checks: newChecks(cfg.Limits), swept: time.Now(),
		callers: callers{
			sessions: map[uint64]*session{}, credentials: map[fingerprint]*credential{}, entries: map[string]*entry{},
			strangers: newStrangers(cfg.Limits),
		},
	}
	c.sched = schedule.New(c.hooks(), cfg.Now, cfg.Log)
	c.unwatch, err = cfg.Manager.Watch(secret.Caller{}, c.rootsAt, func(string) { c.rootsHaveMoved() })
	if err != nil {
		return nil, fmt.Errorf("watch the trust bundle %q: %w", c.rootsAt, err)
	}
	c.pool = c.sched.Pool(cfg.Limits.InFlight, func() *secret.Signer { return cfg.Manager.Signer(cfg.Certificate.Authorities[0]) })
	c.sched.Start()
	return c, nil
}

// Close stops all work and waits for it. It abandons an Exchange or a client that ignores
// its context after one second, and does not wait for a Verifier. It notifies callers; Peek
// then returns ErrClosed. Items that it returned stay valid. Close is idempotent and returns
// nil.
func (c *Set) Close() error {
	c.unwatch()
	c.sched.Close()
	c.sched.Lock()
	defer c.sched.Unlock()
	for _, e := range c.sched.All() {
		c.tellSessions(e)
		c.sched.Remove(e)
	}
	return nil
}

// Kick retries failed attempts at once. Call it when the authority's provider or settings
// have changed.
func (c *Set) Kick() {
	c.sched.Lock()
	defer c.sched.Unlock()
	c.sched.Kick(func(*entry) bool { return true }, func(e *entry) bool { return e.failure != nil })
}

func (c *Set) tell(e secret.Event) {
	e.Secret, e.Authority = c.cfg.Certificate.Name, c.cfg.Certificate.Authorities[0]
	c.sched.Say(func() { c.cfg.Observe(e) })
}

// notReady gives no reason: the authority's message is for the operator, not for a stream.
func notReady(name string) error { return secret.NotReady(name, nil) }

var errNoIdentity = errors.New("no way to identify streams: set Verifier, Claimed or Peer")
