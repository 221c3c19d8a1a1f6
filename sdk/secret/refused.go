package secret

import (
	"crypto/sha256"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
)

// refusedFor is how long a token that was refused is not sent again, however often the
// agent is told that something has changed. It is less than any wait after a refusal.
const refusedFor = 500 * time.Millisecond

// refusedToken is the last token that the authority refused, without the token itself.
type refusedToken struct {
	print [sha256.Size]byte
	at    time.Time
	err   error
}

// note remembers the token that was just sent if err is its refusal.
func (r *refusedToken) note(token ca.Token, err error) {
	if token != "" && ca.ActionFor(err) == ca.RefreshToken {
		*r = refusedToken{sha256.Sum256([]byte(token.Reveal())), time.Now(), err}
	}
}

// again returns the refusal if the token is that one and the refusal is recent.
func (r *refusedToken) again(token ca.Token) error {
	if r.err == nil || time.Since(r.at) >= refusedFor || sha256.Sum256([]byte(token.Reveal())) != r.print {
		return nil
	}
	return r.err
}
