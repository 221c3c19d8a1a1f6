package identities

import (
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Counts is what an operator may see of a [Set]. It names no identity, except in the text
// of a failure.
type Counts struct {
	Identities int `json:"identities"`           // verified, with or without a stream
	Idle       int `json:"idle,omitempty"`       // those without a stream
	Unverified int `json:"unverified,omitempty"` // tokens not verified yet
	Streams    int `json:"streams"`
	Held       int `json:"held"` // identities with a valid certificate
	// Missing counts identities with a stream but no valid certificate; Expired those of
	// them that had one.
	Missing  int `json:"missing,omitempty"`
	Expired  int `json:"expired,omitempty"`
	Failing  int `json:"failing,omitempty"` // whose last attempt failed
	Pending  int `json:"pending,omitempty"` // whose last request the authority has not decided on
	InFlight int `json:"in_flight,omitempty"`
	Waiting  int `json:"waiting,omitempty"` // queued for a free request slot

	// NextRenewal and NextExpiry are the earliest of all; zero if there are none.
	NextRenewal time.Time `json:"next_renewal,omitzero"`
	NextExpiry  time.Time `json:"next_expiry,omitzero"`
	// Failure is the most recent failure that persists; nil if there is none.
	Failure *secret.Failure `json:"failure,omitempty"`

	// Advice is the last word of the authority that moved a renewal; nil if there is none.
	Advice *secret.Advice `json:"advice,omitempty"`

	// The fields below count since the start.
	Requests  int `json:"requests"`           // attempts to get a certificate
	Rotations int `json:"rotations"`          // certificates served
	Joins     int `json:"joins"`              // requests that only identified a token's owner
	Advised   int `json:"advised,omitempty"`  // renewals moved as the authority advised
	Failures  int `json:"failures,omitempty"` // attempts that failed
	Refused   int `json:"refused,omitempty"`  // tokens that the authority refused
	Ended     int `json:"ended,omitempty"`    // streams ended by the Set
	Released  int `json:"released,omitempty"` // idle identities removed
	// TurnedAway counts rejected streams; OverLimit those of them rejected for a limit.
	TurnedAway int `json:"turned_away,omitempty"`
	OverLimit  int `json:"over_limit,omitempty"`
}

// Counts returns the current numbers.
func (c *Set) Counts() Counts {
	c.sched.Lock()
	defer c.sched.Unlock()
	n, now := c.counts, c.sched.Now()
	n.Identities, n.Unverified, n.Streams = len(c.entries), c.nameless, len(c.sessions)
	n.InFlight, n.Waiting = c.pool.InFlight(), c.pool.Waiting()
	c.sched.Each(func(e *entry) { n.add(e, now) })
	return n
}

// add counts one entry.
func (n *Counts) add(e *entry, now time.Time) {
	if t := e.failure; t != nil && t.failure.Event().Kind == secret.Waiting {
		n.Pending++
	} else if t != nil {
		n.Failing++
		if n.Failure == nil || t.failure.At.After(n.Failure.At) {
			n.Failure = t.failure
		}
	}
	switch {
	case e.id == "":
	case e.Valid(now):
		n.Held++
		n.NextExpiry = clock.First(n.NextExpiry, e.Item.NotAfter)
	case len(e.sessions) > 0:
		n.Missing++
		if e.Item != nil {
			n.Expired++
		}
	}
	switch {
	case e.id == "":
	case len(e.sessions) == 0:
		n.Idle++
	case e.Item != nil:
		n.NextRenewal = clock.First(n.NextRenewal, e.Item.RenewAt)
	}
}
