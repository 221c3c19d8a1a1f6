package agent

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/ondemand"
)

// due implements Due of [pluginhost.Options].
func (p *providers) due(name string) (end time.Time, due bool) {
	a := p.agent.Load()
	if a == nil {
		return time.Time{}, false
	}
	if counts, ok := p.identities.get(a.Identities, time.Now()); ok {
		return dueOfMany(counts)
	}
	end, due = a.Due(name)
	if rules, ok := p.onDemand.get(a.OnDemand, time.Now()); ok {
		return dueOnDemand(rules.Rules, name, end, due)
	}
	return end, due
}

// dueOnDemand adds the names on demand of a provider to what is due. New names count only once they
// may be ordered.
func dueOnDemand(rules []ondemand.RuleStatus, provider string, end time.Time, due bool) (time.Time, bool) {
	for _, r := range rules {
		if r.Authority != provider {
			continue
		}
		due = due || r.InFlight+r.Late > 0
		if !r.NextExpiry.IsZero() && (end.IsZero() || r.NextExpiry.Before(end)) {
			end = r.NextExpiry
		}
	}
	return end, due
}

// dueOfMany is [agent.Agent.Due] for an agent of many identities. Streams without a certificate
// make nothing due: any client that connects would start processes.
func dueOfMany(c identities.Counts) (end time.Time, due bool) {
	return c.NextExpiry, !c.NextExpiry.IsZero() && c.Failing+c.Pending+c.InFlight+c.Waiting > 0
}

// briefly keeps what an agent reports of its many names for a second, as each request asks for it.
type briefly[T any] struct {
	mu   sync.Mutex
	last T
	at   time.Time
}

// get returns what is kept, or asks; ok is false if the agent has nothing to report.
func (b *briefly[T]) get(ask func() (T, bool), now time.Time) (report T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.at) < time.Second {
		return b.last, true
	}
	if report, ok = ask(); ok {
		b.last, b.at = report, now
	}
	return report, ok
}
