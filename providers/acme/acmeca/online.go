package acmeca

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider"
)

// ValidateOnline reads the CA's directory and compares it with the settings, and asks for the
// account if there is a key. It opens no account and orders nothing.
func (s Settings) ValidateOnline(ctx context.Context) []provider.Diagnostic {
	c, err := Open(s)
	if err != nil {
		return provider.Faults("", err)
	}
	defer func() { _ = c.Close() }()
	return c.validateOnline(ctx)
}

func (c *CA) validateOnline(ctx context.Context) []provider.Diagnostic {
	dir, err := c.server.directory(ctx)
	if err != nil {
		return provider.Faults("/url", err)
	}
	if err := c.settings.fits(dir); err != nil {
		return provider.Faults("", err)
	}
	key, _, err := c.state.key(keyFile)
	if err != nil { // the first order makes it
		return provider.Faults("/eab", c.settings.binds(dir))
	}
	_, err = c.account.register(ctx, key, true)
	if kindOf(err) == "accountDoesNotExist" { // the first order opens it
		return provider.Faults("/eab", c.settings.binds(dir))
	}
	return provider.Faults("/state_dir", err)
}

// listed returns the profiles' names.
func listed(profiles map[string]string) string {
	if len(profiles) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(profiles)), ", ")
}

// The abilities.
var (
	_ ca.Client         = (*CA)(nil)
	_ ca.RootSource     = (*CA)(nil)
	_ ca.RenewalAdvisor = (*CA)(nil)
)
