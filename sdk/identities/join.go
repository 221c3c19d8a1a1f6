package identities

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/internal/redact"
	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Join admits a stream, given the peer of its socket and its bearer token, which may be
// empty. It returns the stream's caller; pass that to [Set.Leave] when the stream has
// ended.
//
// With a Verifier, Join waits for the verification. If the authority must vouch for the
// token, the stream's secrets are not ready until it has, and its refusal ends the stream.
// An error is of package ca: Unauthenticated or Denied, RateLimited with the name of the
// limit, or a retryable one.
func (c *Set) Join(ctx context.Context, peer secret.Caller, token ca.Token) (secret.Caller, error) {
	if token == "" {
		return c.joinPeer(peer)
	}
	print := fingerprintOf(token)
	claim, err := c.identify(ctx, peer, print, token)
	if err != nil {
		return secret.Caller{}, c.turnAwayFor(redact.Error(err, token))
	}
	c.sched.Lock()
	defer c.sched.Unlock()
	s, err := c.joinToken(peer, token, print, claim)
	if err != nil {
		return secret.Caller{}, c.turnAway(err)
	}
	return s.caller, nil
}

// identify verifies an unknown token, or reads its claims.
func (c *Set) identify(ctx context.Context, peer secret.Caller, print fingerprint, token ca.Token) (Claim, error) {
	c.sched.Lock()
	known := c.credentials[print].proven(c.sched.Now())
	c.sched.Unlock()
	switch id := c.cfg.Identify; {
	case known:
		return Claim{}, nil
	case id.Verifier != nil:
		return c.checks.verify(ctx, id, processOf(peer), print, token)
	case id.Claimed != nil:
		claim, err := id.Claimed(token)
		if err != nil {
			return Claim{}, ca.Errorf(ca.Unauthenticated, "the token does not say whose it is: %w", err)
		}
		return claim, nil
	}
	return Claim{}, ca.Errorf(ca.Unauthenticated, "callers are identified by peer credentials; remove the token")
}

func (c *Set) joinPeer(peer secret.Caller) (secret.Caller, error) {
	id, ok := "", false
	if c.cfg.Identify.Peer != nil {
		id, ok = c.cfg.Identify.Peer(peer)
	}
	if !ok {
		c.sched.Lock()
		defer c.sched.Unlock()
		return secret.Caller{}, c.turnAway(ca.Errorf(ca.Unauthenticated, "the stream brings no token, and its peer (%s) is not known by itself", peer.ID))
	}
	return c.JoinPeer(peer, id)
}

// JoinPeer is [Set.JoinAs] for a stream of the workload itself, which Limits.Streams bounds.
func (c *Set) JoinPeer(peer secret.Caller, spiffeID string) (secret.Caller, error) {
	return c.joinAs(peer, spiffeID, false)
}

// JoinAs admits a stream whose SPIFFE ID the program has established by itself, as [Set.Join] does a
// peer. The certificate is requested without a token of the stream's. Limits.Streams neither bounds
// nor counts such streams: the program bounds them.
func (c *Set) JoinAs(peer secret.Caller, spiffeID string) (secret.Caller, error) {
	return c.joinAs(peer, spiffeID, true)
}

func (c *Set) joinAs(peer secret.Caller, spiffeID string, unbounded bool) (secret.Caller, error) {
	c.sched.Lock()
	defer c.sched.Unlock()
	e, err := c.entryOf(spiffeID)
	if err != nil {
		return secret.Caller{}, c.turnAway(err)
	}
	s, err := c.enter(e, &session{caller: peer, unbounded: unbounded})
	if err != nil {
		return secret.Caller{}, c.turnAway(err)
	}
	return s.caller, nil
}

// joinToken binds a stream to its verified or merely claiming token.
func (c *Set) joinToken(peer secret.Caller, token ca.Token, print fingerprint, claim Claim) (*session, error) {
	now := c.sched.Now()
	cred := c.credentials[print]
	if cred == nil {
		cred = &credential{print: print, expiry: claim.Expiry}
	}
	if cred.over(now) {
		return nil, errOver
	}
	if !cred.proven(now) && c.cfg.Identify.Verifier != nil {
		cred.expiry = claim.Expiry
		cred.prove(claim.SPIFFEID, now)
	}
	e, err := c.entryFor(cred, claim, peer, now)
	if err != nil {
		return nil, err
	}
	s, err := c.enter(e, &session{caller: peer, credential: cred})
	if err != nil {
		return nil, err
	}
	if len(c.credentials) >= len(c.sessions)+rememberedPerIdentity*c.cfg.Limits.Identities {
		c.forgetTokens(func(*credential) bool { return true })
	}
	c.credentials[print] = cred
	cred.token = token
	cred.sessions++
	return s, nil
}

// entryFor returns the entry for a token: its owner's, or its own until it is
// verified.
func (c *Set) entryFor(cred *credential, claim Claim, peer secret.Caller, now time.Time) (*entry, error) {
	if cred.proven(now) {
		c.strangers.succeeded(processOf(peer))
		return c.entryOf(cred.owner)
	}
	if e := cred.entry; e != nil {
		return e, e.refusal(rotation.Now(now))
	}
	if err := c.strangers.closed(processOf(peer)); err != nil {
		return nil, err
	}
	e, err := c.newEntry(claim.SPIFFEID)
	if err != nil {
		return nil, err
	}
	cred.entry, cred.owner = e, ""
	e.token = cred
	c.nameless++
	return e, nil
}

// entryOf returns the entry of a verified identity, making it if needed.
func (c *Set) entryOf(id string) (*entry, error) {
	if e := c.entries[id]; e != nil {
		return e, nil
	}
	e, err := c.newEntry(id)
	if err != nil {
		return nil, err
	}
	e.id = e.asked.String()
	c.entries[e.id] = e
	return e, nil
}

func (c *Set) newEntry(id string) (*entry, error) {
	asked, err := pki.ParseSPIFFEID(id)
	if err != nil {
		return nil, ca.Errorf(ca.Unauthenticated, "cannot determine the stream's identity: %w", err)
	}
	if len(c.entries)+c.nameless >= c.cfg.Limits.Identities && !c.makeRoom() {
		return nil, limited("identities", c.cfg.Limits.Identities)
	}
	return &entry{asked: pki.Identity{SPIFFEID: asked}, idle: c.sched.Now()}, nil
}

// makeRoom removes an unused unverified entry or, failing that, the identity that has been
// idle longest: bad tokens must not keep others out.
func (c *Set) makeRoom() bool {
	var oldest *entry
	for _, e := range c.sched.All() {
		switch {
		case len(e.sessions) > 0 || e.Rotation.Asking():
		case e.id == "":
			c.sched.Remove(e)
			return true
		case oldest == nil || e.idle.Before(oldest.idle):
			oldest = e
		}
	}
	if oldest == nil {
		return false
	}
	c.sched.Remove(oldest)
	return true
}

// enter adds a session to an entry and schedules the entry.
func (c *Set) enter(e *entry, s *session) (*session, error) {
	if c.sched.Closed() {
		c.tidy(e)
		return nil, ca.Errorf(ca.Unavailable, "the agent is shutting down")
	}
	if !s.unbounded && e.bounded() >= c.cfg.Limits.Streams {
		return nil, limited("streams of one identity", c.cfg.Limits.Streams)
	}
	c.last++
	s.caller.Session = c.last
	if e.id != "" {
		s.caller.ID = e.id
	}
	c.sessions[c.last] = s
	if e.id != "" && e.untried(s) && e.failure.token && c.early(e.failure) {
		e.Rotation.Kick()
		e.uses(s.credential).tried = c.counts.Requests // a stream that comes back ends no further pause
	}
	e.add(s)
	c.sched.Schedule(e)
	return s, nil
}
