// Package status is the state of countersign-ra as operators see it: [Report] is /status.json,
// [Show] makes the page of it, and [Command] prints it at a terminal. Package program fills it in.
package status

import (
	"cmp"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/kubernetes/signing/lease"
	"github.com/countersign-dev/countersign/ra"
)

// Report is the state of the service for /status.json and the page. It contains no key and
// no token.
type Report struct {
	daemon.Process
	At    time.Time      `json:"at"`
	Build buildinfo.Info `json:"build"`
	// NotReady is what is missing; empty if this replica signs, or would with the Lease.
	NotReady string       `json:"not_ready,omitempty"`
	Leader   lease.Status `json:"leader"`
	// Needs are the dependencies without which this replica issues nothing, at one door or at all.
	Needs []Need `json:"dependencies,omitempty"`
	// Authorities are empty while another replica leads.
	Authorities []Authority         `json:"authorities,omitempty"`
	Providers   []overview.Provider `json:"providers,omitempty"`
	Clusters    []Cluster           `json:"clusters,omitempty"`
	// Istio is the door for meshes; nil where it is not served.
	Istio *Istio `json:"istio,omitempty"`
	// Sharing is how the engines of this replica share the quotas; empty where one has them all.
	Sharing []Sharing `json:"sharing,omitempty"`
	// Unable names rules that their authorities cannot serve.
	Unable string `json:"unable,omitempty"`
	// Audit is the file with the audit log; "-" is standard output.
	Audit string `json:"audit"`
}

// Authority is the state of an authority's queue, rules and roots.
type Authority struct {
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
	Stopped     []Stopped `json:"stopped,omitempty"`
	Roots       []Root    `json:"roots,omitempty"`
	// Record is why the record of the roots cannot be used, if it cannot.
	Record string `json:"record_error,omitempty"`
}

// Stopped is a rule whose replies failed a check.
type Stopped struct {
	Rule  string    `json:"rule"`
	Since time.Time `json:"since"`
	Error string    `json:"error"`
	// UpTo is the longest lifetime whose requests are held; empty: all are.
	UpTo string `json:"up_to,omitempty"`
}

// Root is a root and its phase.
type Root struct {
	Fingerprint string    `json:"fingerprint"`
	Phase       string    `json:"phase"`
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	NotAfter    time.Time `json:"not_after,omitzero"`
	Unplanned   bool      `json:"unplanned,omitempty"`
}

// Cluster is a cluster with the work in it.
type Cluster struct {
	fleet.Status
	// NotReady is why its requests are not worked on; empty while another replica leads.
	NotReady string `json:"not_ready,omitempty"`
	// Dangerous lists the authorities that are not asked, as they could sign an administrator.
	Dangerous  []string    `json:"dangerous,omitempty"`
	Bundles    []Bundle    `json:"trust_bundles,omitempty"`
	Protection *Protection `json:"pod_requests,omitempty"`
	Shut       []Shut      `json:"shut,omitempty"`
	// Left are the authorities of which no new root waits for the cluster any more, each with what has
	// lacked its roots for an hour.
	Left []string `json:"roots_left_behind,omitempty"`
	// Mesh is what is written for a mesh; nil if nothing is.
	Mesh *Mesh `json:"mesh,omitempty"`
}

// Bundle is a ClusterTrustBundle.
type Bundle struct {
	Signer    string `json:"signer"`
	Authority string `json:"authority,omitempty"`
	// TrustDomain is set for a foreign one, which has no Authority; * stands for former ones.
	TrustDomain string   `json:"trust_domain,omitempty"`
	Object      string   `json:"object"`
	Roots       []string `json:"roots,omitempty"` // fingerprints
	Error       string   `json:"error,omitempty"`
}

// Of names whose roots these are.
func (b Bundle) Of() string { return cmp.Or(b.Authority, b.TrustDomain) }

// Protection is whether nodes alone can create PodCertificateRequests: protected,
// unprotected or unknown.
type Protection struct {
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

// AuthorityOf returns the state of an authority of an engine.
func AuthorityOf(s ra.Status) Authority {
	a := Authority{
		Name: s.Authority, Waiting: s.Waiting, InFlight: s.InFlight, Namespaces: s.Namespaces, Rate: s.Rate, MostRate: s.MostRate * s.Share,
		OldestSeconds: s.Oldest.Seconds(), HeldSeconds: s.HeldFor.Seconds(), Held: s.Held, Record: s.Record,
	}
	for _, by := range s.Stopped {
		one := Stopped{Rule: by.Rule, Since: by.Since, Error: by.Error}
		if by.UpTo > 0 {
			one.UpTo = by.UpTo.String()
		}
		a.Stopped = append(a.Stopped, one)
	}
	for _, r := range s.Roots {
		a.Roots = append(a.Roots, Root(r))
	}
	return a
}

// FirstExpiry returns when the first trusted root ends; zero if none is trusted.
func (a Authority) FirstExpiry() (first time.Time) {
	for _, r := range a.Roots {
		if r.Phase == "trusted" && (first.IsZero() || r.NotAfter.Before(first)) {
			first = r.NotAfter
		}
	}
	return first
}
