package secret

import (
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// holdFor is how long a certificate waits at most for those who watch its trust bundle.
	holdFor = 5 * time.Second
	// holdSettle is the time between their acknowledgements and the certificate: a proxy
	// acknowledges roots before all its threads use them.
	holdSettle = 200 * time.Millisecond
	holdPoll   = 50 * time.Millisecond
)

// hold says from when to serve a verified certificate. One that replaces another and whose
// root is new waits for those who watch its trust bundle, on whichever stream: a peer that
// is served here must know the root before it meets the certificate. If they have it already,
// because of another certificate, that may be a moment ago, so it waits for them to settle.
// The held one is valid meanwhile, and no certificate is held back beyond its end.
func (l *leaf) hold(a *attempt, now time.Time) (begins time.Time) {
	begins = a.item.NotBefore
	if l.config.RootAcknowledged == nil || l.held == nil || !l.held.Ends.After(now) || l.held.Root.Equal(a.chain.Root) {
		return begins
	}
	l.untilRoot = true
	until := now.Add(holdFor)
	if l.held.Ends.Before(until) {
		until = l.held.Ends
	}
	return clock.Later(begins, until)
}

// follow ends the hold once all have the root.
func (l *leaf) follow(now time.Time) {
	switch {
	case !l.untilRoot:
	case l.next == nil:
		l.untilRoot = false
	case l.told(l.next):
		l.untilRoot = false
		l.rotation.BeginBy(clock.Later(l.next.item.NotBefore, now.Add(holdSettle)))
	}
}

// told reports whether all who watch the trust bundles of a's authority have its root.
func (l *leaf) told(a *attempt) bool {
	return l.config.RootAcknowledged(a.by.bundleNames(), pki.Fingerprint(a.chain.Root))
}

// bundleNames names the trust bundles that have the authority's roots.
func (a *authority) bundleNames() (names []string) {
	for _, b := range a.plan.Load().bundles {
		names = append(names, b.name)
	}
	return names
}
