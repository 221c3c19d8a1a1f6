package estca

import (
	"context"

	"github.com/countersign-dev/countersign/sdk/provider"
)

// ValidateOnline asks the server for its roots and for what it demands of a CSR. It has
// nothing signed, so credentials are not tried.
func (s Settings) ValidateOnline(ctx context.Context) []provider.Diagnostic {
	c, err := Open(s)
	if err != nil {
		return provider.Faults("", err)
	}
	if _, err := c.Roots(ctx); err != nil {
		return provider.Faults("", err)
	}
	d, err := c.demands(ctx)
	switch {
	case err != nil:
		return provider.Faults("", err)
	case d.challenge:
		return []provider.Diagnostic{{Warning: true, Summary: c.client.Host() + ": by its " + csrattrs + ", " + d.unmet(nil)}}
	case len(d.keys) > 0:
		return []provider.Diagnostic{{Warning: true, Summary: c.client.Host() + " wants " + d.wanted() + " by its " + csrattrs, Detail: "Ignore this if the secrets have such a key_type."}}
	}
	return nil
}
