package settings

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/istiocompat"
	"github.com/countersign-dev/countersign/internal/host/verified"
)

// checkInstalled reports the entries whose provider is not installed, and why they are
// needed.
func checkInstalled(env environ.Vars, c config.Config) error {
	finder := verified.Finder{Dirs: SearchDirs(env, c.ProviderDirs)}
	var errs []error
	for _, entry := range c.Providers {
		build := c.BuildOf(entry)
		if build.Path+build.Attach != "" {
			continue // reported when it is verified
		}
		_, err := finder.FindVersion(cmp.Or(entry.Provider, entry.Name), build.Version)
		if _, missing := errors.AsType[*verified.NotFoundError](err); !missing {
			continue // as above
		}
		if choice := c.Choice(); choice.Entry == entry.Name {
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
		errs = append(errs, istiocompat.CheckRoot(entry.Name, entry.Provider, entry.Settings))
	}
	return errors.Join(errs...)
}
