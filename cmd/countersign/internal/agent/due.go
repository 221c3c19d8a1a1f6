package agent

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/identities"
)

// due implements Due of [pluginhost.Options].
func (p *providers) due(name string) (end time.Time, due bool) {
	a := p.agent.Load()
	if a == nil {
		return time.Time{}, false
	}
	if counts, ok := p.countsCache.counts(a, time.Now()); ok {
		return dueOfMany(counts)
	}
	return a.Due(name)
}

// dueOfMany is [agent.Agent.Due] for an agent of many identities. Streams without a certificate
// make nothing due: any client that connects would start processes.
func dueOfMany(c identities.Counts) (end time.Time, due bool) {
	return c.NextExpiry, !c.NextExpiry.IsZero() && c.Failing+c.Pending+c.InFlight+c.Waiting > 0
}

// countsCache keeps the counts of an agent of many identities for a second, as each request asks
// for them.
type countsCache struct {
	mu   sync.Mutex
	last identities.Counts
	at   time.Time
}

func (c *countsCache) counts(a *agent.Agent, now time.Time) (counts identities.Counts, ok bool) {
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
