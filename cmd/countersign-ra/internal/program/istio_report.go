package program

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-ra/internal/status"
	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// counts are what the door did since the start: calls by how they ended, and outcomes of the
// engine by rule. No caller is among them.
type counts struct {
	mu       sync.Mutex
	calls    map[istioca.Result]uint64
	outcomes map[outcomeKey]uint64
	copied   time.Time // the last certificate of a machine that was copied
}

type outcomeKey struct{ rule, result string }

func newCounts() *counts {
	return &counts{calls: map[istioca.Result]uint64{}, outcomes: map[outcomeKey]uint64{}}
}

// called receives the events of the server.
func (d *door) called(e istioca.Event) {
	d.of.metrics.Called(e)
	d.counts.mu.Lock()
	defer d.counts.mu.Unlock()
	d.counts.calls[e.Result]++
	if e.Result == istioca.Copied {
		d.counts.copied = time.Now()
	}
}

// observe receives the events of the engine.
func (d *door) observe(e ra.Event) {
	d.of.metrics.Outcome(e)
	d.counts.mu.Lock()
	defer d.counts.mu.Unlock()
	d.counts.outcomes[outcomeKey{e.Rule, e.Result}]++
}

// report is nil for a door that is not configured.
func (d *door) report() *status.Istio {
	if d == nil || d.of.dry {
		return nil
	}
	r := &status.Istio{Address: d.of.config.Istio.Listen, Certificate: d.certificate.report()}
	if address := d.address.Load(); address != nil {
		r.Address = *address
	}
	if err := d.ready(); err != nil {
		r.NotReady = err.Error()
	}
	r.Calls, r.Outcomes = d.counts.all()
	r.Renewals = d.renewed()
	r.UnknownClusters, _ = d.unknownReferences()
	if e := d.engine.Load(); e != nil {
		for _, a := range e.Status() {
			r.Authorities = append(r.Authorities, status.AuthorityOf(a))
		}
		r.Dangerous = d.dangerous(e)
	}
	return r
}

func (d *door) renewed() *status.Renewals {
	if len(d.callers.now.Load().Istio.Renewals.Identities) == 0 {
		return nil
	}
	now := d.server.RenewalsStatus()
	r := &status.Renewals{Chains: now.Chains}
	if now.Err != nil {
		r.Error = text.Clean(now.Err.Error())
	}
	d.counts.mu.Lock()
	defer d.counts.mu.Unlock()
	r.Copied = d.counts.copied
	return r
}

func (c *counts) all() (map[istioca.Result]uint64, []status.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []status.Outcome
	for of, n := range c.outcomes {
		all = append(all, status.Outcome{Rule: of.rule, Result: of.result, Count: n})
	}
	slices.SortFunc(all, func(a, b status.Outcome) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), strings.Compare(a.Result, b.Result))
	})
	return maps.Clone(c.calls), all
}

// dangerous returns why authorities are not asked, as an API server trusts them with its clients.
func (d *door) dangerous(e *ra.Engine) (all []string) {
	for _, known := range d.clientCAWatches.all() {
		if known.Ready() != nil {
			continue
		}
		for _, a := range d.of.config.Authorities {
			if err := known.Check(a.Name, e.Roots(a.Name)); err != nil {
				all = append(all, err.Error())
			}
		}
	}
	return all
}
