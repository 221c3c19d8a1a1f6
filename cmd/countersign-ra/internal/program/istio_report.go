package program

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
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
	m := d.of.metrics
	m.calls.WithLabelValues(string(e.Result)).Inc()
	if e.Took > 0 {
		m.called.Observe(e.Took.Seconds())
	}
	d.counts.mu.Lock()
	defer d.counts.mu.Unlock()
	d.counts.calls[e.Result]++
	if e.Result == istioca.Copied {
		d.counts.copied = time.Now()
	}
}

// observe receives the events of the engine.
func (d *door) observe(e ra.Event) {
	d.of.metrics.outcome(e)
	d.counts.mu.Lock()
	defer d.counts.mu.Unlock()
	d.counts.outcomes[outcomeKey{e.Rule, e.Result}]++
}

// istio is the state of the door.
type istio struct {
	Address string `json:"address"`
	// NotReady is why no call is served; empty if they are.
	NotReady string `json:"not_ready,omitempty"`
	// Certificate is the door's own.
	Certificate held `json:"certificate"`
	// Calls and Outcomes count since the start.
	Calls    map[istioca.Result]uint64 `json:"calls"`
	Outcomes []outcome                 `json:"outcomes,omitempty"`
	// Authorities are those of the door's engine: its queues, rates and roots are not the
	// leader's.
	Authorities []authority `json:"authorities,omitempty"`
	Dangerous   []string    `json:"dangerous,omitempty"`
	// UnknownClusters are clusters of its settings that are not known.
	UnknownClusters []unknownReference `json:"unknown_clusters,omitempty"`
	// Renewals are those of machines without a token; nil if there are none.
	Renewals *renewed `json:"renewals,omitempty"`
}

// renewed is the state of the record of renewals.
type renewed struct {
	// Chains are those of the record when it was last needed.
	Chains int `json:"chains"`
	// Error is why it could not be used; empty if it could.
	Error string `json:"error,omitempty"`
	// Copied is when a machine's certificate was last presented after its successor.
	Copied time.Time `json:"copied,omitzero"`
}

// outcome counts what came of a rule's requests. One without a rule was refused before one
// was found.
type outcome struct {
	Rule   string `json:"rule,omitempty"`
	Result string `json:"result"`
	Count  uint64 `json:"count"`
}

// report is nil for a door that is not configured.
func (d *door) report() *istio {
	if d == nil || d.on == nil {
		return nil
	}
	r := &istio{Address: d.on.Addr().String(), Certificate: d.certificate.report()}
	if err := d.ready(); err != nil {
		r.NotReady = err.Error()
	}
	r.Calls, r.Outcomes = d.counts.all()
	r.Renewals = d.renewed()
	r.UnknownClusters, _ = d.unknownReferences()
	if e := d.engine.Load(); e != nil {
		for _, a := range e.Status() {
			r.Authorities = append(r.Authorities, authorityOf(a))
		}
		r.Dangerous = d.dangerous(e)
	}
	return r
}

func (d *door) renewed() *renewed {
	if len(d.callers.now.Load().Istio.Renewals.Identities) == 0 {
		return nil
	}
	now := d.server.RenewalsStatus()
	r := &renewed{Chains: now.Chains}
	if now.Err != nil {
		r.Error = text.Clean(now.Err.Error())
	}
	d.counts.mu.Lock()
	defer d.counts.mu.Unlock()
	r.Copied = d.counts.copied
	return r
}

func (c *counts) all() (map[istioca.Result]uint64, []outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []outcome
	for of, n := range c.outcomes {
		all = append(all, outcome{of.rule, of.result, n})
	}
	slices.SortFunc(all, func(a, b outcome) int {
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

func (r *istio) collect(gauge gauge) {
	if r == nil {
		return
	}
	gauge(istioReadyDesc, number(r.NotReady == ""))
	if end := r.Certificate.NotAfter; !end.IsZero() {
		gauge(istioExpiryDesc, float64(end.Unix()))
	}
	if r.Renewals != nil {
		gauge(renewalsDesc, number(r.Renewals.Error == ""))
	}
	for _, a := range r.Authorities {
		a.collect("istio", gauge)
	}
}

func (r *istio) problems() (all []problem) {
	if r == nil {
		return nil
	}
	if r.NotReady != "" {
		all = append(all, problem{Grade: bad, What: "Istio's CA API is not served by this replica", Detail: r.NotReady, Do: "See the certificate below, its provider, and the API server of the home cluster."})
	}
	if c := r.Certificate; c.Error != "" && r.NotReady == "" {
		all = append(all, problem{Grade: fair, What: "The certificate of Istio's CA API is not renewed", Detail: c.Error, At: c.Failed, Do: "The old one is used to its end. See the provider, or the files."})
	}
	for _, why := range r.Dangerous {
		all = append(all, problem{Grade: bad, What: "An authority is not asked for a mesh, as an API server trusts it with its API", Detail: why, Do: "Calls get an error that asks for a retry. Use an authority that no API server trusts as a client CA."})
	}
	for _, one := range r.UnknownClusters {
		all = append(all, one.problem())
	}
	return append(append(all, r.Renewals.problems()...), ofAuthorities(r.Authorities)...)
}

// toldFor is how long a copied certificate is reported.
const toldFor = 24 * time.Hour

func (r *renewed) problems() (all []problem) {
	if r == nil {
		return nil
	}
	if r.Error != "" {
		all = append(all, problem{Grade: bad, What: "Machines cannot renew by their certificates", Detail: r.Error, Do: "Check the API server of the home cluster. A record that is of no use is never replaced: restore the ConfigMap from a backup, or delete it and give each machine a token."})
	}
	if time.Since(r.Copied) < toldFor {
		all = append(all, problem{Grade: bad, What: "A machine's certificate was copied", At: r.Copied, Do: "The audit log names the machine. Neither renews any more: find out who has the copy, then give the machine a token."})
	}
	return all
}

// istio prints what the door does.
func (t tables) istio(r *istio) {
	if r == nil {
		return
	}
	t.Head("ISTIO'S CA API", "CERTIFICATE ENDS", "CALLS")
	var calls []string
	for _, result := range slices.Sorted(maps.Keys(r.Calls)) {
		calls = append(calls, string(result)+" "+strconv.FormatUint(r.Calls[result], 10))
	}
	t.Line(r.Address, daemon.Moment(r.Certificate.NotAfter), strings.Join(calls, ", "))
	if r.Renewals != nil {
		t.Head("RENEWALS WITHOUT A TOKEN", "ERROR")
		t.Line(strconv.Itoa(r.Renewals.Chains), r.Renewals.Error)
	}
	t.outcomes(r.Outcomes)
	t.authorities(report{Authorities: r.Authorities})
	t.roots(report{Authorities: r.Authorities})
}

func (t tables) outcomes(all []outcome) {
	for i, o := range all {
		if i == 0 {
			t.Head("RULE OF ISTIO'S CA API", "RESULT", "COUNT")
		}
		t.Line(o.Rule, o.Result, strconv.FormatUint(o.Count, 10))
	}
}
