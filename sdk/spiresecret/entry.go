package spiresecret

import (
	"time"

	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// AuthorityName is the Authority of every [secret.Item] of a [Source].
const AuthorityName = "SPIFFE Workload API"

// entry is one secret. The Source's lock guards it, except for the fields that only run
// uses.
type entry struct {
	spec Spec // fixed

	watchers watchers.Set[func()]
	held     *secret.Item
	count    int
	failure  *secret.Failure
	err      error // of failure

	// Owned by the run goroutine:
	said    string // the last failure logged
	useless string // the last root left out that was logged
	expired bool   // the expiry was reported
}

func (e *entry) status(now time.Time) secret.Status {
	status := secret.Status{
		Name: e.spec.Name, Kind: e.spec.Kind.String(), Authorities: []string{AuthorityName}, Asked: e.spec.String(),
		Item: e.held, Rotations: e.count, Failure: e.failure,
	}
	switch {
	case e.held == nil:
	case e.held.Expired(now):
		status.ExpiredSince = e.held.NotAfter
	default:
		status.Held = true
	}
	return status
}
