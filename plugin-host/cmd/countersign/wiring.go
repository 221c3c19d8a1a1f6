package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

func agentConfig(c config.Config, p *providers, m *metrics, log *slog.Logger) (agent.Config, error) {
	cfg := agent.Config{
		Socket: sds.Config{
			Path: c.ListenPath(), Mode: os.FileMode(c.Socket.Mode), Observe: m.stream,
			Policy: sds.Policy{UIDs: c.Socket.AllowUIDs, GIDs: c.Socket.AllowGIDs, Refuse: p.refuse},
		},
		WorkloadAPI:  workloadAPI(c.WorkloadAPI),
		Gateway:      gatewayOf(c.Gateway, m),
		DrainTimeout: c.DrainTimeout.Duration, Observe: m.secret, Log: log,
	}
	var errs []error
	for _, entry := range c.Providers {
		authority, err := authorityOf(entry, p.of(entry.Name), p.tokens)
		errs = append(errs, err)
		cfg.Authorities = append(cfg.Authorities, authority)
	}
	p.tokens.keep(c.Providers)
	for _, entry := range c.Secrets {
		spec, err := specOf(entry, c.Rotation)
		errs = append(errs, err)
		cfg.Secrets = append(cfg.Secrets, spec)
		if spec.KeyType == pki.Ed25519 {
			log.Warn("older Envoys cannot use an Ed25519 key (1.40 was seen to)", "secret", spec.Name)
		}
	}
	if c.Workloads.On() {
		errs = append(errs, manyIdentities(&cfg, c.Workloads, p.tokens))
	}
	return cfg, errors.Join(errs...)
}

func workloadAPI(c config.WorkloadAPI) workloadapi.Config {
	out := workloadapi.Config{Path: c.Socket, Mode: os.FileMode(c.Mode), Offer: workloadapi.Offer{Federated: c.Federated}}
	for _, identity := range c.Identities {
		out.Identities = append(out.Identities, workloadapi.Identity{Certificate: identity.Name, Roots: identity.Bundle, Hint: identity.Hint})
	}
	return out
}

func authorityOf(entry config.Provider, client ca.Client, book *tokenBook) (secret.Authority, error) {
	a := secret.Authority{Name: entry.Name, Client: client, AcceptLongerTTL: entry.AcceptLongerTTL}
	switch entry.IdentityCheck {
	case "trust-domain":
		a.Names = pki.TrustDomainName
	case "any":
		a.Names = pki.AnyName
	}
	if tokens, err := book.of(entry, client); err != nil {
		return a, err
	} else if tokens != nil {
		a.Token, a.TokenRejected = tokens.Token, tokens.Rejected
	}
	if entry.RootOverlap != nil {
		a.RootOverlap = &entry.RootOverlap.Duration
	}
	if entry.PinnedRoots == "" {
		return a, nil
	}
	text, err := os.ReadFile(entry.PinnedRoots)
	if err == nil {
		a.PinnedRoots, err = pki.ParseBundle(text)
	}
	if err != nil {
		return a, fmt.Errorf("providers.%s.pinned_roots is %q: %w", entry.Name, entry.PinnedRoots, err)
	}
	return a, nil
}

func specOf(entry config.Secret, r config.Rotation) (secret.Spec, error) {
	if entry.Kind == config.TrustBundle {
		return secret.Spec{Name: entry.Name, Kind: secret.TrustBundle, Authorities: entry.Providers}, nil
	}
	id, err := pki.NewIdentity(entry.SPIFFEID, entry.DNSNames, entry.IPAddresses)
	if err != nil {
		return secret.Spec{}, fmt.Errorf("secrets.%s: %w", entry.Name, err)
	}
	keyType, err := pki.ParseKeyType(entry.KeyType)
	return secret.Spec{
		Name: entry.Name, Kind: secret.KeyPair, Authorities: entry.Providers, Identity: id, FallbackAfter: entry.FallbackAfter.Duration,
		KeyType: keyType, TTL: entry.TTL.Duration, RenewRatio: r.Ratio, RenewJitter: max(r.Jitter, 1e-9), // 0 would be the default
	}, err
}
