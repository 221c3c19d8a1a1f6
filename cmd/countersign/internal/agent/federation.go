package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/followed"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/authn/federation"
	"github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/witsvid"
)

// federated has the bundles of foreign trust domains that bundle endpoints publish. It runs
// nothing: the secret.Manager asks them.
type federated struct {
	endpoints []config.BundleEndpoint
	source    *federation.Source
	keys      jwtsvid.Foreign
	wits      *witsvid.Foreign // nil without that experiment
	secrets   secret.Source    // of the agent, once begun is closed
	begun     chan struct{}
}

// follower is the authority of an endpoint. It waits for the agent's secrets, which have the roots of the
// last run: initial roots would replace them.
type follower struct {
	*federation.Authority
	begun <-chan struct{}
}

// WatchRoots implements [ca.RootWatcher].
func (f follower) WatchRoots(ctx context.Context, changed func(roots []byte) error) error {
	select {
	case <-f.begun:
		return f.Authority.WatchRoots(ctx, changed)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// openFederation has the JWT keys of the last run count until the endpoints answer, if a storage has
// kept them.
func openFederation(c *config.Config, storage secret.Storage, log *slog.Logger) (*federated, error) {
	f := &federated{endpoints: c.BundleEndpoints, begun: make(chan struct{})}
	if c.ServesWIT() {
		f.wits = &witsvid.Foreign{}
	}
	kept := newKeptKeys(storage, log)
	authorities := map[string]string{} // by trust domain
	var all []federation.Endpoint
	for _, e := range f.endpoints {
		one, err := followed.Endpoint(e.Followed)
		if err != nil {
			return nil, fmt.Errorf("bundle_endpoints.%s.%w", e.Name, err)
		}
		authorities[e.TrustDomain] = e.Authority()
		if jwks := kept.load(e.Authority()); jwks != nil {
			f.take(e.TrustDomain, jwks, log)
		}
		all = append(all, one)
	}
	var err error
	f.source, err = federation.New(all, federation.Options{Log: log, Kept: f.kept, JWTKeys: func(trustDomain string, jwks []byte) {
		if f.take(trustDomain, jwks, log) {
			kept.store(authorities[trustDomain], jwks)
		}
	}, WITKeys: func(trustDomain string, jwks []byte) { f.takeWIT(trustDomain, jwks, log) }})
	if err != nil {
		return nil, fmt.Errorf("bundle_endpoints: %w", err)
	}
	return f, nil
}

// take reports whether these are keys.
func (f *federated) take(trustDomain string, jwks []byte, log *slog.Logger) bool {
	return taken(f.keys.Set(trustDomain, jwks), "JWT-SVID", trustDomain, log)
}

func (f *federated) takeWIT(trustDomain string, jwks []byte, log *slog.Logger) {
	if f.wits != nil {
		taken(f.wits.Set(trustDomain, jwks), "WIT-SVID", trustDomain, log)
	}
}

func taken(err error, kind, trustDomain string, log *slog.Logger) bool {
	if err != nil {
		log.Error(fmt.Sprintf("rejected the %s keys of a foreign trust domain, keeping the previous ones", kind), "trust_domain", trustDomain, "error", err)
	}
	return err == nil
}

// begin starts to follow the endpoints. The roots of the last run, which state has kept, verify them. Call
// it once.
func (f *federated) begin(secrets secret.Source) {
	f.secrets = secrets
	close(f.begun)
}

func (f *federated) kept(trustDomain string) *pki.Bundle {
	i := slices.IndexFunc(f.endpoints, func(e config.BundleEndpoint) bool { return e.TrustDomain == trustDomain })
	if i < 0 {
		return nil
	}
	item, err := f.secrets.Peek(secret.Caller{}, f.endpoints[i].Name)
	if err != nil {
		return nil
	}
	roots, _ := pki.ParseBundle(item.Roots) // they are served, so they are sound
	return roots
}

// join adds their bundles to the secrets. A change of a trust domain's roots counts at once.
func (f *federated) join(cfg *agent.Config) {
	for _, e := range f.endpoints {
		cfg.Authorities = append(cfg.Authorities, secret.Authority{
			Name: e.Authority(), Client: follower{f.source.Authority(e.TrustDomain), f.begun}, RootOverlap: new(time.Duration),
		})
		cfg.Secrets = append(cfg.Secrets, secret.Spec{Name: e.Name, Kind: secret.TrustBundle, Authorities: []string{e.Authority()}})
		if cfg.Identities != nil {
			cfg.Identities.Bundles = append(cfg.Identities.Bundles, e.Name)
		}
	}
	if len(f.endpoints) > 0 {
		cfg.WorkloadAPI.FederatedJWT = &f.keys
		if f.wits != nil {
			cfg.WorkloadAPI.FederatedWIT = f.wits
		}
	}
}
