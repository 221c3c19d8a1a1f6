package filesecret

import (
	"time"

	"github.com/countersign-dev/countersign/sdk/secret"
)

// entry is one name. The Source's lock guards it, except what only its goroutine
// uses.
type entry struct {
	spec    Spec   // fixed
	dynamic bool   // fixed
	read    reader // fixed

	watchers  []*watcher
	held      *secret.Item
	forbidden bool // a link of it leads out of the folders
	count     int
	failure   *secret.Failure

	// Of the goroutine alone:
	seen    bool          // it was looked at
	said    string        // what was last complained of
	pause   time.Duration // before the next look at files that are not good
	again   time.Time     // when that is; zero where they are good
	mourned bool          // the expiry was told
}

type watcher struct{ notify func(name string) }

// notices returns the calls that tell the watchers; they are made with no lock held.
func (e *entry) notices() []func() {
	var calls []func()
	for _, w := range e.watchers {
		calls = append(calls, func() { w.notify(e.spec.Name) })
	}
	return calls
}

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

// label is the entry's name for a metric: never one that a client chose.
func (e *entry) label() string {
	if !e.dynamic {
		return e.spec.Name
	}
	if e.spec.Roots != "" {
		return rootPrefix
	}
	return certPrefix
}
