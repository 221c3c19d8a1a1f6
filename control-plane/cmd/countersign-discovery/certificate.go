package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	pluginhost "github.com/countersign-dev/countersign/plugin-host"
	agent "github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/wiring"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// signed holds the server's certificate from a provider, and the CA's roots.
type signed struct {
	*secret.Manager
	providers []*pluginhost.Provider

	stop     context.CancelFunc
	retrying sync.WaitGroup
}

// findCertificate finds and verifies the providers. The certificate is requested once they
// are started.
func findCertificate(ctx context.Context, c *agent.Config, observe func(secret.Event), log *slog.Logger) (*signed, error) {
	s := &signed{}
	back := make(chan string, 2*len(c.Providers))
	opts := pluginhost.Options{
		Dirs: searchDirs(c.ProviderDirs), Dev: c.Dev, RuntimeDir: runtimeDir(c.RuntimeDir), Log: log,
		OnState: func(status pluginhost.Status) {
			if status.State == pluginhost.Ready {
				select {
				case back <- status.Name:
				default: // the queued retries suffice
				}
			}
		},
	}
	cfg := secret.Config{Observe: observe, Log: log}
	err := s.find(c, opts, &cfg)
	if err == nil {
		s.Manager, err = secret.New(cfg)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	ctx, s.stop = context.WithCancel(ctx)
	s.retrying.Go(func() { s.retry(ctx, back) })
	return s, nil
}

// find adds an authority for each provider, and the secrets they sign, to cfg.
func (s *signed) find(c *agent.Config, opts pluginhost.Options, cfg *secret.Config) error {
	book := wiring.NewTokenCache(opts.Log)
	var errs []error
	for _, entry := range c.Providers {
		provider, err := pluginhost.Find(opts, wiring.Entry(entry, c.BuildOf(entry)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.providers = append(s.providers, provider)
		authority, err := wiring.Authority(entry, provider, book)
		errs = append(errs, err)
		cfg.Authorities = append(cfg.Authorities, authority)
	}
	for _, entry := range c.Secrets {
		spec, err := wiring.Spec(entry, c.Rotation)
		errs = append(errs, err)
		cfg.Secrets = append(cfg.Secrets, spec)
	}
	return errors.Join(errs...)
}

// begin starts the providers and waits for none: the service is not ready until it holds
// its certificate.
func (s *signed) begin() {
	for _, p := range s.providers {
		p.Begin()
	}
}

// retry retries what failed because of a provider as soon as that is ready again.
func (s *signed) retry(ctx context.Context, back <-chan string) {
	for {
		select {
		case name := <-back:
			s.Kick(name)
		case <-ctx.Done():
			return
		}
	}
}

// Close stops the requests, then the providers.
func (s *signed) Close() error {
	var err error
	if s.Manager != nil {
		s.stop()
		s.retrying.Wait()
		err = s.Manager.Close()
	}
	return errors.Join(err, s.each((*pluginhost.Provider).Close))
}

func (s *signed) each(do func(*pluginhost.Provider) error) error {
	errs := make([]error, len(s.providers))
	var all sync.WaitGroup
	for i, p := range s.providers {
		all.Go(func() { errs[i] = do(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// searchDirs returns the folders to search for providers, as in the agent.
func searchDirs(first []string) []string {
	return pluginhost.DefaultDirs(pluginhost.Search{
		ProviderDirs: first, ProviderPath: os.Getenv("COUNTERSIGN_PROVIDER_PATH"),
		Executable: executable(), DataHome: os.Getenv("XDG_DATA_HOME"), Home: os.Getenv("HOME"),
	})
}

// executable returns the path of this program. "countersign discovery" runs a copy in
// memory, without a path, and passes the path as the first argument.
func executable() string {
	if filepath.IsAbs(os.Args[0]) {
		return os.Args[0]
	}
	path, _ := os.Executable() // if unknown, its folder is not searched
	return path
}

// checkRuntimeDir returns an error if no provider can be started in the folder.
func checkRuntimeDir(dir string) error {
	if dir == "" {
		return nil // the system's folder for temporary files
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("runtime_dir is %q: %w; create the folder", dir, err)
	case !info.IsDir():
		return fmt.Errorf("runtime_dir is %q: that is not a folder", dir)
	}
	return nil
}

func runtimeDir(configured string) string {
	if configured == "" {
		return os.Getenv("XDG_RUNTIME_DIR")
	}
	return configured
}
