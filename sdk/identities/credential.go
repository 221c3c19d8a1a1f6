package identities

import (
	"crypto/sha256"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// remembered is how long a verified token is known without another look whose end
	// is not known.
	remembered = 5 * time.Minute
	// rememberedPerIdentity bounds the tokens that are known and that no stream has.
	rememberedPerIdentity = 4
)

// fingerprint is the SHA-256 of a token. Tokens are looked up by it: how long that
// takes says something of the hash of a token, and nothing of a token that would hash
// to it.
type fingerprint [sha256.Size]byte

func fingerprintOf(token ca.Token) fingerprint { return sha256.Sum256([]byte(token.Reveal())) }

// credential is what is known of a token. Its text is there while a session has it.
type credential struct {
	print    fingerprint
	token    ca.Token
	expiry   time.Time // zero: not known
	owner    string    // the SPIFFE ID that it was verified for; "": none yet
	until    time.Time // when the verification ends
	entry    *entry    // without an owner: where its request is kept
	sessions int
	doubted  bool // the authority did not accept it at the last rotation
}

// over tells whether the token has ended. No token never does.
func (c *credential) over(now time.Time) bool {
	return c != nil && !c.expiry.IsZero() && !now.Before(c.expiry)
}

// proven tells whether the token was verified and that still counts.
func (c *credential) proven(now time.Time) bool {
	return c != nil && c.owner != "" && now.Before(c.until)
}

// prove notes whose the token is.
func (c *credential) prove(owner string, now time.Time) {
	c.owner, c.until, c.entry, c.doubted = owner, c.expiry, nil, false
	if c.expiry.IsZero() {
		c.until = now.Add(remembered)
	}
}

// better tells whether to send this one rather than other.
func (c *credential) better(other *credential) bool {
	switch {
	case c == nil || other == nil:
		return c == nil && other != nil // a peer's needs no token to be good
	case c.doubted != other.doubted:
		return other.doubted
	}
	return c.expiry.After(other.expiry)
}

// process is where a stream comes from.
type process struct {
	uid uint32
	pid int32
}

func processOf(peer secret.Caller) process { return process{peer.UID, peer.PID} }

// forgetTokens lets go of what is known of tokens that no session has, and that gone is
// true for. One that comes again is verified again.
func (c *Set) forgetTokens(gone func(*credential) bool) {
	for print, cred := range c.credentials {
		if cred.sessions == 0 && cred.entry == nil && gone(cred) {
			delete(c.credentials, print)
		}
	}
}
