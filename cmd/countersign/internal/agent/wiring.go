package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/countersign-dev/countersign/cmd/countersign/internal/demand"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/metrics"
	"github.com/countersign-dev/countersign/cmd/countersign/internal/workloads"
	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// clients are where the authorities of a configuration get their clients and tokens.
type clients struct {
	of     func(name string) ca.Client
	tokens *wiring.TokenCache
}

func agentConfig(c config.Config, from clients, p *providers, m *metrics.Metrics, log *slog.Logger) (agent.Config, error) {
	cfg := agent.Config{
		Socket: sds.Config{
			Limits: xds.Limits{MaxNames: demand.MaxNames(c)},
			Path:   c.ListenPath(), Mode: os.FileMode(c.Socket.Mode), Observe: m.Stream, SPIRE: spireNames(c),
			Policy: sds.Policy{UIDs: c.Socket.AllowUIDs, GIDs: c.Socket.AllowGIDs, Refuse: p.refuse},
		},
		WorkloadAPI:  workloadAPI(c.WorkloadAPI, c.Socket.Mode),
		Gateway:      gatewayOf(c.Gateway, c.Socket.Mode, m),
		DrainTimeout: c.DrainTimeout.Duration, Observe: m.Secret, Log: log,
	}
	var errs []error
	domains := make(map[string]string, len(c.Secrets)) // by secret
	for _, entry := range c.Providers {
		authority, err := wiring.Authority(entry, from.of(entry.Name), from.tokens)
		errs = append(errs, err)
		cfg.Authorities = append(cfg.Authorities, authority)
	}
	from.tokens.Keep(c.Providers)
	for _, entry := range c.Named() {
		spec, err := wiring.Spec(entry, c.Rotation)
		errs = append(errs, err)
		cfg.Secrets = append(cfg.Secrets, spec)
		domains[spec.Name] = spec.Identity.TrustDomain()
		warnOfKey(spec, log)
	}
	for _, s := range c.Spire.Secrets {
		if id, err := pki.ParseSPIFFEID(s.SPIFFEID); err == nil { // otherwise it takes what comes
			domains[s.Name] = id.Host
		}
	}
	setTrustDomains(&cfg, domains)
	if c.Workloads.On() {
		errs = append(errs, workloads.Wire(&cfg, c.Workloads, from.tokens))
	}
	return cfg, errors.Join(errs...)
}

// setTrustDomains sets the trust domain of each identity, so that its bundles do not wait for
// its certificate.
func setTrustDomains(cfg *agent.Config, domains map[string]string) {
	for i := range cfg.WorkloadAPI.Identities {
		identity := &cfg.WorkloadAPI.Identities[i]
		identity.TrustDomain = domains[identity.Certificate]
	}
	for i := range cfg.Socket.SPIRE.Identities {
		identity := &cfg.Socket.SPIRE.Identities[i]
		identity.TrustDomain = domains[identity.Certificate]
	}
}

// movedDomains names the certificates whose bundles stand under another trust domain since the start:
// the servers have got that one.
func movedDomains(started, now *sds.SPIRE) (moved []string) {
	domains := make(map[string]string, len(now.Identities))
	for _, is := range now.Identities {
		domains[is.Certificate] = is.TrustDomain
	}
	for _, was := range started.Identities {
		if is, stays := domains[was.Certificate]; stays && is != was.TrustDomain {
			moved = append(moved, fmt.Sprintf("the trust domain of %q", was.Certificate))
		}
	}
	return moved
}

// warnOfKey names what many peers cannot use: they would fail one by one, and not say why.
func warnOfKey(spec secret.Spec, log *slog.Logger) {
	switch spec.KeyType {
	case pki.Ed25519:
		log.Warn("older Envoys cannot use Ed25519 keys; 1.40 can", "secret", spec.Name)
	case pki.MLDSA44, pki.MLDSA65, pki.MLDSA87:
		log.Warn("few peers can use ML-DSA keys: Envoy 1.40 with signature_algorithms in its tls_params, and programs built with Go 1.27", "secret", spec.Name, "key_type", spec.KeyType)
	}
}

// spireNames are of the identities that the Workload API has, whether it is served or not.
func spireNames(c config.Config) *sds.SPIRE {
	out := &sds.SPIRE{Federated: c.WorkloadAPI.Federated, Validator: sds.Validator(c.Socket.SPIFFEValidator)}
	for _, identity := range c.WorkloadAPI.Identities {
		out.Identities = append(out.Identities, sds.SPIREIdentity{Certificate: identity.Name, Roots: identity.Bundle})
	}
	if len(out.Identities) == 0 {
		out.Identities = []sds.SPIREIdentity{{Certificate: config.DefaultSecret, Roots: config.RootCA}}
	}
	return out
}

func workloadAPI(c config.WorkloadAPI, mode config.FileMode) workloadapi.Config {
	out := workloadapi.Config{Path: c.Socket, Mode: os.FileMode(mode), Offer: workloadapi.Offer{Federated: c.Federated}}
	for _, identity := range c.Identities {
		out.Identities = append(out.Identities, workloadapi.Identity{Certificate: identity.Name, Roots: identity.Bundle, Hint: identity.Hint})
	}
	return out
}
