package settings

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/internal/host/verified"
)

// findMissing returns an error for each entry whose provider is not installed, by its name, and
// marks the provider in the configuration.
func findMissing(env environ.Vars, c *config.Config) map[string]error {
	finder := verified.Finder{Dirs: wiring.SearchDirs(env, c.ProviderDirs)}
	missing := map[string]error{}
	for i := range c.Providers {
		entry := &c.Providers[i]
		if entry.Path+entry.Attach != "" {
			continue // reported when it is verified
		}
		_, err := finder.FindVersion(cmp.Or(entry.Provider, entry.Name), entry.Version)
		if _, ok := errors.AsType[*verified.NotFoundError](err); ok { // others as above
			missing[entry.Name] = err
			entry.Missing = true
		}
	}
	return missing
}

// missingError joins what is missing, in the order of the entries, and why it is needed.
func missingError(c config.Config, missing map[string]error) error {
	var errs []error
	for _, entry := range c.Providers {
		err := missing[entry.Name]
		if choice := c.Choice(); err != nil && choice.Entry == entry.Name {
			err = fmt.Errorf("%w (chosen because %s)", err, choice.Rule)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkIstiodRoot requires the file with the root that istiod is verified with.
func checkIstiodRoot(c config.Config) error {
	var errs []error
	for _, entry := range c.Providers {
		errs = append(errs, istiocompat.CheckRoot(entry.Name, entry.Provider, c.AddressOf(entry), entry.Settings))
	}
	return errors.Join(errs...)
}
