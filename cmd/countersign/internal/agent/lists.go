package agent

import (
	"context"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/revocation"
)

// lister is a Workload API that sends revocation lists.
type lister interface {
	Revocations(ctx context.Context, take func(lists []byte, err error))
}

// revocationOf returns the trust bundles with lists. spire may be nil if none names it.
func revocationOf(c config.Config, p *providers, spire lister) revocation.Config {
	out := revocation.Config{Debounce: c.Files.Debounce.Duration}
	for _, list := range c.CRL {
		bundle := revocation.Bundle{
			Name: list.Name, Files: list.Files, Chains: list.Chains, LeafOnly: list.LeafOnly, Stale: revocation.Stale(list.Stale),
		}
		for _, name := range list.Providers {
			feed := revocation.Feed{Name: name}
			if name == config.SpireProvider && spire != nil {
				feed.Follow = spire.Revocations
			} else {
				feed.Follow = revocation.Poll(revocation.Polled{Source: published{p, name}})
			}
			bundle.Feeds = append(bundle.Feeds, feed)
		}
		out.Bundles = append(out.Bundles, bundle)
	}
	return out
}

// published are the lists of a provider's CA. A reload may replace the provider.
type published struct {
	providers *providers
	name      string
}

func (p published) Revocations(ctx context.Context) ([]byte, error) {
	provider := p.providers.of(p.name)
	if provider == nil {
		return nil, ca.Errorf(ca.Unavailable, "the provider is no longer configured: restart the agent")
	}
	return provider.Revocations(ctx)
}
