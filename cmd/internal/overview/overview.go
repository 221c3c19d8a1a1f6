// Package overview has what the reports (status.json, support bundles) of all programs that host
// providers have in common: the process, its configuration and its providers. It holds no state.
package overview

import (
	"time"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/sdk/ca"
)

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
	Facts          []string  `json:"facts,omitempty"` // about its CA: see [FactsOf]
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
		Protocol: s.Protocol, LastError: s.LastError, NextStart: s.NextStart, Facts: FactsOf(s.Metadata.Facts),
	}
	for _, ability := range s.Metadata.Abilities {
		out.Abilities = append(out.Abilities, ability.String())
	}
	return out
}

// FactsOf returns in words what a provider states about its CA. What relaxes the checks of an agent
// has the setting that overrides it.
func FactsOf(f ca.Facts) (facts []string) {
	if f.FixedLifetime {
		facts = append(facts, "its CA chooses the lifetime (accept_longer_ttl)")
	}
	if f.NameMatch != ca.MatchExact {
		facts = append(facts, "its CA chooses the names: "+f.NameMatch.String()+" (identity_check)")
	}
	if f.NeedsToken {
		facts = append(facts, "its CA requires a token")
	}
	return facts
}

// Mark is a state in words, and its grade: "good", "fair" or "bad".
type Mark struct{ Words, Grade string }

// Mark returns the state of a provider.
func (p Provider) Mark() Mark {
	switch p.State {
	case "ready":
		switch {
		case p.LastReload != "":
			return Mark{"ready; its last reload was refused", "fair"}
		case p.LastSecret != "":
			return Mark{"ready; it refused a changed secret", "fair"}
		}
		return Mark{p.State, "good"}
	case "refused":
		return Mark{"refused its settings", "bad"}
	case "backoff", "circuit open", "stopped":
		return Mark{p.State, "bad"}
	}
	return Mark{p.State, "fair"}
}
