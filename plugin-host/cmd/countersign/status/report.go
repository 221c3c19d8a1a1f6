// Package status is what an operator may see of a running agent: [Report], which is
// /status as JSON and / as a page, and [Recorder], which remembers what the agent
// itself forgets. None of it holds a key or a token.
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
	Secrets   []secret.Status `json:"secrets"`
	Providers []Provider      `json:"providers"`
	Streams   int             `json:"streams"` // open, fetches included
	// Configuration is whether the agent runs with what its file says.
	Configuration Configuration `json:"configuration"`
	Proxy         *proxy.Status `json:"proxy,omitempty"`
	// Workloads are the numbers of an agent of many identities.
	Workloads *identities.Counts `json:"workloads,omitempty"`
	// Gateway is what is held of a discovery service.
	Gateway *gateway.Status `json:"gateway,omitempty"`
	// OpenStreams are the newest of them, Events what has happened on all.
	OpenStreams []Stream `json:"open_streams,omitempty"`
	Events      Events   `json:"stream_events"`
	// Errors are the last ones, the newest first.
	Errors []Error `json:"errors,omitempty"`
}

// Configuration is what became of the last change of it.
type Configuration struct {
	// Refused is why it was not taken over, so that the one before runs on; empty: it was.
	Refused string    `json:"refused,omitempty"`
	At      time.Time `json:"at,omitzero"` // of that reload; zero: there was none since the start
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
	Authentication string    `json:"authentication,omitempty"`
	Protocol       int       `json:"protocol,omitempty"`
	LastError      string    `json:"last_error,omitempty"`
	NextStart      time.Time `json:"next_start,omitzero"`
}

// ProviderOf returns what may be seen of a provider.
func ProviderOf(s pluginhost.Status) Provider {
	out := Provider{
		Name: s.Name, Provider: s.Provider, Version: s.Metadata.Version, State: string(s.State), Since: s.Since,
		Path: s.Path, SHA256: s.SHA256, PID: s.PID, Restarts: s.Restarts, Reloads: s.Reloads, LastReload: s.LastReload,
		Authentication: string(s.Authentication),
		Protocol:       s.Protocol, LastError: s.LastError, NextStart: s.NextStart,
	}
	for _, ability := range s.Metadata.Abilities {
		out.Abilities = append(out.Abilities, ability.String())
	}
	return out
}
