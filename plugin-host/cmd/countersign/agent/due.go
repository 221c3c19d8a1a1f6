package agent

import (
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// due implements Due of [pluginhost.Options].
func (p *providers) due(name string) (end time.Time, due bool) {
	a := p.agent.Load()
	if a == nil {
		return time.Time{}, false
	}
	now := time.Now()
	if counts, ok := p.crowd.counts(a, now); ok {
		return dueOfMany(counts)
	}
	return dueOf(a.Status(), name, now)
}

// dueOf returns the earliest end of a certificate that the provider is to renew now; the zero
// time if all that it is to sign now is not held.
func dueOf(secrets []secret.Status, name string, now time.Time) (end time.Time, due bool) {
	for _, s := range secrets {
		if s.Kind != secret.KeyPair.String() || !slices.Contains(s.Authorities, name) || !isDue(s, now) {
			continue
		}
		due = true
		if s.Held && (end.IsZero() || s.Item.NotAfter.Before(end)) {
			end = s.Item.NotAfter
		}
	}
	return end, due
}

func isDue(s secret.Status, now time.Time) bool {
	switch {
	case s.Asking || s.Failure != nil:
		return true
	case !s.Held:
		return !s.Released
	}
	return !s.Item.RenewAt.IsZero() && now.After(s.Item.RenewAt)
}

// dueOfMany is dueOf for an agent of many identities. Streams without a certificate make
// nothing due: whoever may connect would start processes.
func dueOfMany(c identities.Counts) (end time.Time, due bool) {
	return c.NextExpiry, !c.NextExpiry.IsZero() && c.Failing+c.InFlight+c.Waiting > 0
}

// crowd keeps the counts of an agent of many identities for a second, as each request asks
// for them.
type crowd struct {
	mu   sync.Mutex
	last identities.Counts
	at   time.Time
}

func (c *crowd) counts(a *agent.Agent, now time.Time) (counts identities.Counts, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.at) < time.Second {
		return c.last, true
	}
	if counts, ok = a.Identities(); ok {
		c.last, c.at = counts, now
	}
	return counts, ok
}
