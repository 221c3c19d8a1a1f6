package program

import (
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// report is the state of the service for /status.json and the page. It contains no key and
// no token.
type report struct {
	daemon.Process
	At     time.Time        `json:"at"`
	Build  buildinfo.Info   `json:"build"`
	Server discovery.Status `json:"server"`
	// Secrets are the server's own certificate, its roots, and roots from files.
	Secrets      []secret.Status     `json:"secrets"`
	Providers    []overview.Provider `json:"providers,omitempty"`
	TrustDomains []trustDomain       `json:"trust_domains,omitempty"`
	Clusters     []fleet.Status      `json:"clusters,omitempty"`
	// Unknown are the cluster IDs in settings that no cluster has.
	Unknown    []config.ClusterName `json:"unknown_clusters,omitempty"`
	Kubernetes *counted             `json:"kubernetes,omitempty"`
	Watched    *watching            `json:"watched_secrets,omitempty"`
	Folder     *folder.Status       `json:"folder,omitempty"`
}

// trustDomain is the state of one trust domain's roots. Fetched and Problem come from its
// bundle endpoint.
type trustDomain struct {
	Name    string    `json:"name"`
	From    string    `json:"from"`
	Roots   int       `json:"roots"`
	Fetched time.Time `json:"fetched,omitzero"`
	Problem string    `json:"problem,omitempty"`
}

func (s *service) report() report {
	r := report{
		Process: s.life.Report(), At: time.Now().UTC(), Build: buildinfo.This(), Server: s.server.Status(), Secrets: s.held(), TrustDomains: s.trust.status(s.config.TrustDomains),
	}
	if s.signed != nil {
		r.Providers = s.signed.providers.Status()
	}
	if s.clusters != nil {
		r.Clusters, r.Kubernetes, r.Watched = s.clusters.Status(), s.clusters.counted(), s.clusters.watching()
		r.Unknown = s.unknownClusters()
	}
	if s.resources != nil {
		held := s.resources.Status()
		r.Folder = &held
	}
	return r
}

// unknownClusters is empty until the clusters are synced.
func (s *service) unknownClusters() []config.ClusterName {
	if s.clusters.Ready() != nil {
		return nil
	}
	return slices.DeleteFunc(s.config.ClusterNames(), func(n config.ClusterName) bool { return s.clusters.Known(n.ID) })
}

// held returns the status of the secrets that the service itself needs.
func (s *service) held() []secret.Status {
	if s.signed == nil {
		return s.files.Status()
	}
	return append(s.signed.Status(), s.files.Status()...)
}

// endpoint returns the status of a trust domain's bundle endpoint.
func endpoint(all []federation.Status, name string) (federation.Status, bool) {
	i := slices.IndexFunc(all, func(e federation.Status) bool { return e.TrustDomain == name })
	if i < 0 {
		return federation.Status{}, false
	}
	return all[i], true
}
