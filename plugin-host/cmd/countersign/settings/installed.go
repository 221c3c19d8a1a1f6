package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/internal/verified"
)

// checkInstalled names the entries whose provider is in no folder, what is there
// instead, and why it was looked for.
func checkInstalled(c config.Config) error {
	finder := verified.Finder{Dirs: SearchDirs(c.ProviderDirs)}
	var errs []error
	for _, entry := range c.Providers {
		build := c.BuildOf(entry)
		if build.Path+build.Attach != "" {
			continue // told when it is verified
		}
		_, err := finder.FindVersion(cmp.Or(entry.Provider, entry.Name), build.Version)
		if _, missing := errors.AsType[*pluginhost.NotFoundError](err); !missing {
			continue // what may not run is told when it is verified
		}
		if choice := c.Choice(); choice.Entry == entry.Name {
			err = fmt.Errorf("%w (chosen because %s)", err, choice.Rule)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// istiodRoot is where Istio mounts the root of istiod's own certificate.
const istiodRoot = "./var/run/secrets/istio/root-cert.pem"

// checkIstiodRoot demands the file with the root that istiod is verified with: who
// starts without it would ask in vain for ever.
func checkIstiodRoot(c config.Config) error {
	var errs []error
	for _, entry := range c.Providers {
		address, _ := entry.Settings["address"].(string)
		root, _ := entry.Settings["root_file"].(string)
		root = cmp.Or(root, istiodRoot)
		if entry.Provider != "citadel" || strings.HasSuffix(address, ":15010") || root == "SYSTEM" {
			continue
		}
		if _, err := os.Stat(root); err != nil {
			errs = append(errs, fmt.Errorf("providers.%s.settings.root_file is %q: istiod's certificate is verified with it, but %w; mount it, or set CA_ROOT_CA to another file or to SYSTEM", entry.Name, root, err))
		}
	}
	return errors.Join(errs...)
}
