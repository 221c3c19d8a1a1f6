// Package status shows an operator the state of a running agent: [Report] is /status as
// JSON and / as a page, and [Recorder] remembers the errors and streams that the agent itself
// does not keep. The agent's goroutines call the Recorder, which has a mutex; a Report is a
// copy. Neither holds a key or a token.
package status

import (
	"time"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/proxy"
	"github.com/countersign-dev/countersign/cmd/internal/overview"
	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/ondemand"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Report is the agent at one moment.
type Report struct {
	At time.Time `json:"at"`
	// Headline is [Report.Summary] where the report is written as JSON.
	Headline  *badge              `json:"headline,omitempty"`
	Build     buildinfo.Info      `json:"build"`
	Machine   overview.Machine    `json:"machine"`
	Secrets   []secret.Status     `json:"secrets"`
	Providers []overview.Provider `json:"providers"`
	Streams   int                 `json:"streams"` // open, fetches included
	// Configuration is the result of the last reload.
	Configuration overview.Configuration `json:"configuration"`
	// Restart lists the changed settings that wait for a restart of the agent.
	Restart []string `json:"restart_pending,omitempty"`
	State   *State   `json:"state,omitempty"`
	// Outputs are the files that are written, by name.
	Outputs []Output `json:"outputs,omitempty"`
	// Ends is when the first CA certificate above each key pair ends, by name.
	Ends  map[string]Term `json:"ca_ends,omitempty"`
	Proxy *proxy.Status   `json:"proxy,omitempty"`
	// Workloads are the counters of an agent of many identities.
	Workloads *identities.Counts `json:"workloads,omitempty"`
	// OnDemand has the rules for names that clients ask for.
	OnDemand        *ondemand.Status `json:"on_demand,omitempty"`
	OnDemandStreams OnDemandStreams  `json:"on_demand_streams,omitzero"`
	// JWTSVIDs is how signing of JWT-SVIDs goes, if they are configured.
	JWTSVIDs *JWTSVIDs `json:"jwt_svids,omitempty"`
	// WITSVIDs is how signing of WIT-SVIDs goes, if that experiment is on.
	WITSVIDs *Tokens `json:"wit_svids,omitempty"`
	// Gateway is the state of the connection to a discovery service.
	Gateway *gateway.Status `json:"gateway,omitempty"`
	// OpenStreams are the newest ones, Events the counters of all.
	OpenStreams []Stream `json:"open_streams,omitempty"`
	Events      Events   `json:"stream_events"`
	// Errors are the most recent ones, newest first.
	Errors []Error `json:"errors,omitempty"`
}
