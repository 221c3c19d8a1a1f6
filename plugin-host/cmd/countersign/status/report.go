// Package status shows an operator the state of a running agent: [Report] is /status as
// JSON and / as a page, and [Recorder] remembers the errors and streams that the agent itself
// does not keep. The agent's goroutines call the Recorder, which has a mutex; a Report is a
// copy. Neither holds a key or a token.
package status

import (
	"time"

	"github.com/countersign-dev/countersign/internal/program/buildinfo"
	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/proxy"
	"github.com/countersign-dev/countersign/sdk/gateway"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Report is the agent at one moment.
type Report struct {
	At        time.Time       `json:"at"`
	Build     buildinfo.Info  `json:"build"`
	Machine   Machine         `json:"machine"`
	Secrets   []secret.Status `json:"secrets"`
	Providers []Provider      `json:"providers"`
	Streams   int             `json:"streams"` // open, fetches included
	// Configuration is the result of the last reload.
	Configuration Configuration `json:"configuration"`
	// Restart lists the changed settings that wait for a restart of the agent.
	Restart []string `json:"restart_pending,omitempty"`
	State   *State   `json:"state,omitempty"`
	// Outputs are the files that are written, by name.
	Outputs []Output `json:"outputs,omitempty"`
	// Ends says for each key pair by name when the first CA certificate above it ends.
	Ends  map[string]Term `json:"ca_ends,omitempty"`
	Proxy *proxy.Status   `json:"proxy,omitempty"`
	// Workloads are the counters of an agent of many identities.
	Workloads *identities.Counts `json:"workloads,omitempty"`
	// JWTSVIDs is how signing of JWT-SVIDs goes, if they are configured.
	JWTSVIDs *JWTSVIDs `json:"jwt_svids,omitempty"`
	// Gateway is the state of the connection to a discovery service.
	Gateway *gateway.Status `json:"gateway,omitempty"`
	// OpenStreams are the newest ones, Events the counters of all.
	OpenStreams []Stream `json:"open_streams,omitempty"`
	Events      Events   `json:"stream_events"`
	// Errors are the most recent ones, newest first.
	Errors []Error `json:"errors,omitempty"`
}

// Configuration is the result of the last reload.
type Configuration struct {
	// Refused is why it was rejected, so that the previous one stays in effect; empty: it was
	// not.
	Refused string    `json:"refused,omitempty"`
	At      time.Time `json:"at,omitzero"` // of that reload; zero: none yet
}

// Provider is one provider of the configuration.
type Provider struct {
	Name           string    `json:"name"`
	Provider       string    `json:"provider"`
	Version        string    `json:"version,omitempty"`
	Abilities      []string  `json:"abilities,omitempty"`
	State          string    `json:"state"`
	Since          time.Time `json:"since"`
	Path           string    `json:"path"`
	SHA256         string    `json:"sha256"`
	PID            int       `json:"pid,omitempty"`
	Restarts       int       `json:"restarts"`
	Reloads        int       `json:"reloads"`
	LastReload     string    `json:"last_reload_error,omitempty"`
	LastSecret     string    `json:"last_secret_error,omitempty"`
	Authentication string    `json:"authentication,omitempty"`
	Protocol       int       `json:"protocol,omitempty"`
	LastError      string    `json:"last_error,omitempty"`
	NextStart      time.Time `json:"next_start,omitzero"`
}

// ProviderOf returns the part of a provider's status that is shown.
func ProviderOf(s pluginhost.Status) Provider {
	out := Provider{
		Name: s.Name, Provider: s.Provider, Version: s.Metadata.Version, State: string(s.State), Since: s.Since,
		Path: s.Path, SHA256: s.SHA256, PID: s.PID, Restarts: s.Restarts, Reloads: s.Reloads, LastReload: s.LastReload,
		LastSecret: s.LastSecret, Authentication: string(s.Authentication),
		Protocol: s.Protocol, LastError: s.LastError, NextStart: s.NextStart,
	}
	for _, ability := range s.Metadata.Abilities {
		out.Abilities = append(out.Abilities, ability.String())
	}
	return out
}
