// Package workloads configures an agent of many identities, for package agent: [Wire] gives
// each stream its own secret, and [Followed] exchanges the tokens of streams. A Followed is
// safe for concurrent use.
package workloads

import (
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// recycle is how long a stream may leave a push unacknowledged before it is closed.
const recycle = 5 * time.Minute

// Wire gives each stream a "default" of its own, instead of the one of all.
func Wire(cfg *agent.Config, w config.Workloads, cache *wiring.TokenCache) error {
	spec := cfg.Secrets[0] // it is the first
	cfg.Secrets = cfg.Secrets[1:]
	for _, peer := range w.Peers {
		if !peer.Held() || cfg.WorkloadAPI.Path != "" {
			cfg.Socket.Policy.UIDs = append(cfg.Socket.Policy.UIDs, peer.UID)
		}
	}
	cfg.Identities = &identities.Config{
		Certificate: spec, Bundles: bundlesOf(cfg.Secrets),
		Limits: identities.Limits{
			Identities: int(w.Limits.Identities), Streams: int(w.Limits.Streams), InFlight: int(w.Limits.Requests),
			Refused: int(w.Limits.RefusedTokens),
		},
		Identify: identities.Identify{Peer: Peers(w.Peers).OfCaller},
	}
	if len(spec.Authorities) > 0 {
		cfg.Identities.Exchange = ExchangeOf(cache, spec.Authorities[0])
	}
	cfg.Socket.Recycle = recycle
	cfg.Socket.Limits = xds.Limits{MaxNames: int(w.Limits.Names)}
	if w.VerifiedBy == "" {
		return nil
	}
	return identifyBy(&cfg.Identities.Identify, w, cfg.Log)
}

// bundlesOf returns the names of what all may have: ROOTCA, which is the first, and
// further trust bundles.
func bundlesOf(specs []secret.Spec) []string {
	names := make([]string, len(specs))
	for i, spec := range specs {
		names[i] = spec.Name
	}
	return names
}
