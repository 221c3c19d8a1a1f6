package program

import (
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/signing/lease"
	"github.com/countersign-dev/countersign/ra"
)

// report is the state of the service for /status.json and the page. It contains no key and
// no token.
type report struct {
	daemon.Process
	At    time.Time      `json:"at"`
	Build buildinfo.Info `json:"build"`
	// NotReady is what is missing; empty if this replica signs, or would with the Lease.
	NotReady string       `json:"not_ready,omitempty"`
	Leader   lease.Status `json:"leader"`
	// Authorities are empty while another replica leads.
	Authorities []authority         `json:"authorities,omitempty"`
	Providers   []overview.Provider `json:"providers,omitempty"`
	Clusters    []cluster           `json:"clusters,omitempty"`
	// Istio is the door for meshes; nil where it is not served.
	Istio *istio `json:"istio,omitempty"`
	// Sharing is how the engines of this replica share the quotas; empty where one has them all.
	Sharing []sharing `json:"sharing,omitempty"`
	// Unable names rules that their authorities cannot serve.
	Unable string `json:"unable,omitempty"`
	// Audit is the file with the audit log; "-" is standard output.
	Audit string `json:"audit"`
}

// authority is the state of an authority's queue, rules and roots.
type authority struct {
	Name          string  `json:"name"`
	Waiting       int     `json:"waiting"`
	InFlight      int     `json:"in_flight"`
	Namespaces    int     `json:"namespaces"`     // that have something waiting
	OldestSeconds float64 `json:"oldest_seconds"` // how long the first of them has waited
	Rate          float64 `json:"rate"`           // calls a second, at present
	MostRate      float64 `json:"most_rate"`      // this engine's share of what is configured
	// HeldSeconds is how long nothing will be asked; Held is why, where that is known.
	HeldSeconds float64   `json:"held_seconds,omitempty"`
	Held        string    `json:"held,omitempty"`
	Stopped     []stopped `json:"stopped,omitempty"`
	Roots       []root    `json:"roots,omitempty"`
	// Record is why the record of the roots cannot be used, if it cannot.
	Record string `json:"record_error,omitempty"`
}

// stopped is a rule whose replies failed a check.
type stopped struct {
	Rule  string    `json:"rule"`
	Since time.Time `json:"since"`
	Error string    `json:"error"`
	// UpTo is the longest lifetime whose requests are held; empty: all are.
	UpTo string `json:"up_to,omitempty"`
}

// root is a root and its phase.
type root struct {
	Fingerprint string    `json:"fingerprint"`
	Phase       string    `json:"phase"`
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	NotAfter    time.Time `json:"not_after,omitzero"`
	Unplanned   bool      `json:"unplanned,omitempty"`
}

// cluster is a cluster with the work in it.
type cluster struct {
	fleet.Status
	// NotReady is why its requests are not worked on; empty while another replica leads.
	NotReady string `json:"not_ready,omitempty"`
	// Dangerous lists the authorities that are not asked, as they could sign an administrator.
	Dangerous  []string    `json:"dangerous,omitempty"`
	Bundles    []bundle    `json:"trust_bundles,omitempty"`
	Protection *protection `json:"pod_requests,omitempty"`
	Shut       []shut      `json:"shut,omitempty"`
	// Mesh is what is written for a mesh; nil if nothing is.
	Mesh *meshReport `json:"mesh,omitempty"`
}

// bundle is a ClusterTrustBundle.
type bundle struct {
	Signer    string   `json:"signer"`
	Authority string   `json:"authority"`
	Object    string   `json:"object"`
	Roots     []string `json:"roots,omitempty"` // fingerprints
	Error     string   `json:"error,omitempty"`
}

// protection is whether nodes alone can create PodCertificateRequests: protected,
// unprotected or unknown.
type protection struct {
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

func (s *service) report() report {
	r := report{Process: s.life.Report(), At: time.Now().UTC(), Build: buildinfo.This(), Providers: s.providers.Status(), Audit: s.config.Audit.File, Istio: s.door.report()}
	if err := s.signs(); err != nil {
		r.NotReady = err.Error()
	}
	t := s.session.Load()
	if r.Leader.Leading = t != nil; s.lease != nil {
		r.Leader = s.lease.Status()
	}
	for _, c := range s.clusters.Status() {
		r.Clusters = append(r.Clusters, cluster{Status: c})
	}
	if s.door != nil {
		r.Sharing = s.door.quotas.Load().report("istio")
	}
	if t != nil {
		t.report(&r)
	}
	return r
}

func (t *leaderSession) report(r *report) {
	r.Sharing = append(r.Sharing, t.quotas.report("kubernetes")...)
	for _, a := range t.engine.Status() {
		r.Authorities = append(r.Authorities, authorityOf(a))
	}
	for i := range r.Clusters {
		t.mu.Lock()
		o := t.clusterRuns[r.Clusters[i].ID]
		t.mu.Unlock()
		if o == nil {
			r.Clusters[i].NotReady = "it is not connected"
			continue
		}
		o.report(&r.Clusters[i])
		r.Clusters[i].Dangerous = t.dangerous(o)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.Unable = t.unable
}

// dangerous returns why authorities are not asked in a cluster whose client CAs are known.
func (t *leaderSession) dangerous(o *clusterRun) (all []string) {
	if o.wrong != nil || o.clientCA.Ready() != nil {
		return nil
	}
	for _, a := range t.config.Authorities {
		if err := o.clientCA.Check(a.Name, t.engine.Roots(a.Name)); err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}

func (o *clusterRun) report(k *cluster) {
	if err := o.ready(); err != nil {
		k.NotReady = err.Error()
	}
	if o.wrong != nil {
		return
	}
	if o.bundles != nil {
		for _, b := range o.bundles.Status() {
			k.Bundles = append(k.Bundles, bundle{b.Signer, b.Authority, b.Object, b.Roots, b.Error})
		}
	}
	k.Mesh = o.mesh.report()
	k.Shut = o.shut()
	if o.admission != nil {
		p := o.admission.Protection()
		k.Protection = &protection{p.State, p.Why}
	}
}

func authorityOf(s ra.Status) authority {
	a := authority{
		Name: s.Authority, Waiting: s.Waiting, InFlight: s.InFlight, Namespaces: s.Namespaces, Rate: s.Rate, MostRate: s.MostRate * s.Share,
		OldestSeconds: s.Oldest.Seconds(), HeldSeconds: s.HeldFor.Seconds(), Held: s.Held, Record: s.Record,
	}
	for _, by := range s.Stopped {
		one := stopped{Rule: by.Rule, Since: by.Since, Error: by.Error}
		if by.UpTo > 0 {
			one.UpTo = by.UpTo.String()
		}
		a.Stopped = append(a.Stopped, one)
	}
	for _, r := range s.Roots {
		a.Roots = append(a.Roots, root(r))
	}
	return a
}

// firstExpiry returns when the first trusted root ends; zero if none is trusted.
func (a authority) firstExpiry() (first time.Time) {
	for _, r := range a.Roots {
		if r.Phase == "trusted" && (first.IsZero() || r.NotAfter.Before(first)) {
			first = r.NotAfter
		}
	}
	return first
}
