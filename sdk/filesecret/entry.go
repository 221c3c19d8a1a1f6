package filesecret

import (
	"time"

	"github.com/countersign-dev/countersign/internal/watchers"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// entry is one name. The Source's lock guards it, except for the fields that only run
// uses.
type entry struct {
	spec Spec   // fixed
	read reader // fixed
	own  bool   // fixed; the roots of the credential folder's own trust domain
	// federated is set for a trust domain in the credential folder.
	federated bool // fixed
	// dynamic is set if the name exists only while it is watched: one that carries its paths,
	// or one of a trust domain without a file. Only run changes it.
	dynamic bool

	watchers  watchers.Set[func()]
	held      *secret.Item
	forbidden bool // the path or a link leads out of the folders
	count     int
	failure   *secret.Failure

	// Owned by the run goroutine:
	seen    bool          // it was read at least once
	said    string        // the last failure logged
	pause   time.Duration // before invalid files are read again
	again   time.Time     // when to do so; zero if the files are valid
	expired bool          // the expiry was reported
	// For own, the trust domains that were last read, and whose roots are held.
	domain, heldDomain string
}

// unknown reports whether the name is not served. The caller holds the lock.
func (e *entry) unknown() bool { return e.forbidden || e.federated && e.dynamic }

func (e *entry) status(now time.Time) secret.Status {
	status := secret.Status{
		Name: e.spec.Name, Kind: e.spec.kind().String(), Authorities: []string{authority},
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

// label returns the name for metrics, never one that a client chose.
func (e *entry) label() string {
	if !e.dynamic {
		return e.spec.Name
	}
	if e.spec.Roots != "" {
		return rootPrefix
	}
	return certPrefix
}
