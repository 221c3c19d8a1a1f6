// Package status is the state of countersign-discovery as operators see it: [Report] is
// /status.json, [Show] makes the page of it, and [Command] prints it at a terminal. Package program
// fills it in.
package status

import (
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/discovery/folder"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/kubernetes/fleet"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Report is the state of the service for /status.json and the page. It contains no key and
// no token.
type Report struct {
	daemon.Process
	At     time.Time        `json:"at"`
	Build  buildinfo.Info   `json:"build"`
	Server discovery.Status `json:"server"`
	// Secrets are the server's own certificate, its roots, and roots from files.
	Secrets      []secret.Status     `json:"secrets"`
	Providers    []overview.Provider `json:"providers,omitempty"`
	TrustDomains []TrustDomain       `json:"trust_domains,omitempty"`
	Clusters     []fleet.Status      `json:"clusters,omitempty"`
	// Unknown are the cluster IDs in settings that no cluster has.
	Unknown    []config.ClusterName `json:"unknown_clusters,omitempty"`
	Kubernetes *Kubernetes          `json:"kubernetes,omitempty"`
	Watched    *Watched             `json:"watched_secrets,omitempty"`
	Folder     *folder.Status       `json:"folder,omitempty"`
}

// TrustDomain is the state of one trust domain's roots. Fetched and Problem come from its
// bundle endpoint.
type TrustDomain struct {
	Name    string    `json:"name"`
	From    string    `json:"from"`
	Roots   int       `json:"roots"`
	Fetched time.Time `json:"fetched,omitzero"`
	Problem string    `json:"problem,omitempty"`
}
