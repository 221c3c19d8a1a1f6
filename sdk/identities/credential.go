package identities

import (
	"crypto/sha256"
	"time"

	"github.com/countersign-dev/countersign/internal/rotation"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

const (
	// remembered is how long a verified token of unknown expiry is accepted without
	// another verification.
	remembered = 5 * time.Minute
	// rememberedPerIdentity bounds the known tokens that no stream uses.
	rememberedPerIdentity = 4
)

// fingerprint is the SHA-256 of a token and the key to look it up. The lookup's timing
// reveals a part of the hash, but no part of a token with that hash.
type fingerprint [sha256.Size]byte

func fingerprintOf(token ca.Token) fingerprint { return sha256.Sum256([]byte(token.Reveal())) }

// credential is the Set's record of a token. It holds the text while a session uses it.
type credential struct {
	print    fingerprint
	token    ca.Token
	expiry   time.Time      // zero: unknown
	owner    string         // the SPIFFE ID it was verified for; "": none yet
	until    rotation.Pause // until the verification expires
	entry    *entry         // without an owner: the entry that holds its request
	sessions int
	uses     uses
}

// uses are the numbers of the requests with a credential, or without one, by Counts.Requests.
type uses struct {
	tried   int // the last one, or the last before it ended a pause
	doubted int // the last one if it was rejected, or its token could not be exchanged; zero otherwise
}

// over reports whether the token has expired. A nil credential never does.
func (c *credential) over(now time.Time) bool {
	return c != nil && !c.expiry.IsZero() && !now.Before(c.expiry)
}

// proven reports whether the token was verified and the verification is still valid.
func (c *credential) proven(now time.Time) bool {
	return c != nil && c.owner != "" && !c.until.Over(rotation.Now(now))
}

// prove records the token's verified owner.
func (c *credential) prove(owner string, now time.Time) {
	c.owner, c.entry = owner, nil
	good := remembered
	if !c.expiry.IsZero() {
		good = c.expiry.Sub(now)
	}
	c.until = rotation.NewPause(good, rotation.Now(now))
}

func processOf(peer secret.Caller) process { return process{peer.UID, peer.PID} }

// forgetTokens removes the tokens that no session uses and for which gone returns true.
// They are verified again when they return.
func (c *Set) forgetTokens(gone func(*credential) bool) {
	for print, cred := range c.credentials {
		if cred.sessions == 0 && cred.entry == nil && gone(cred) {
			delete(c.credentials, print)
		}
	}
}
