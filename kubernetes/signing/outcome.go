package signing

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// soonest and latest bound when a request comes back. The engine keeps its place by its
	// first ask and answers what has to wait from memory, so that coming back is cheap; a
	// request lives for 15 minutes, and must not sleep through the end of an outage.
	soonest = time.Second
	latest  = time.Minute
)

// Outcome is what an error of an [ra.Issuer] means for the request.
type Outcome struct {
	// Final means that the request can never be granted. If false, it stays pending.
	Final bool
	// KeyType, Names and Usages name the cause: the type of the key, a requested name, or the usages
	// in the CSR.
	KeyType, Names, Usages bool
	// Message is the reason, for a status: it is bounded and contains no token.
	Message string
	// Again is how long a pending request waits before it is asked for once more.
	Again time.Duration
}

// OutcomeOf returns what an error means. Final is only what the engine refused by itself
// ([ra.Refused]): no rule grants it, or the CSR is wrong. A final refusal for a pod holds until
// the pod is deleted, and a pod that was refused a refresh keeps running until its certificate
// expires.
//
// An authority's own Denied and Invalid are not final, although the same request may fare no
// better: they also come of a role that lacks a right, a template or a pool that is configured
// wrongly, and of an expired credential, all of which an operator mends while the request
// waits. The engine audits them and backs off, to one call a minute for each holder, and
// Kubernetes deletes the request after 15 minutes, so asking for ever costs little.
func OutcomeOf(err error) Outcome {
	return Outcome{
		Final: ra.Refused(err), KeyType: errors.Is(err, ra.ErrKeyType), Names: errors.Is(err, ra.ErrNames), Usages: errors.Is(err, ra.ErrUsages),
		Message: text.Clean(strings.TrimPrefix(err.Error(), ca.ReasonFor(err).String()+": ")),
		Again:   Spread(min(max(ca.RetryAfter(err), soonest), latest)),
	}
}

// Spread returns a wait of d to one and a half times d, so that those who were refused together
// do not come back together.
func Spread(d time.Duration) time.Duration {
	return d + rand.N(max(d/2, 1))
}
