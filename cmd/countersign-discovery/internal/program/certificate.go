package program

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	agent "github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/daemon"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/cmd/internal/wiring"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// signed holds the server's certificate from a provider, and the CA's roots.
type signed struct {
	*secret.Manager
	started   atomic.Pointer[secret.Manager] // the same, for due: its first requests are sent before there is a Manager
	providers *daemon.Providers

	stop     context.CancelFunc
	retrying sync.WaitGroup
}

// findCertificate finds and verifies the providers. The certificate is requested once they
// are started.
func findCertificate(ctx context.Context, env environ.Vars, c *agent.Config, observe func(secret.Event), log *slog.Logger) (*signed, error) {
	s := &signed{}
	providers, err := daemon.FindProviders(env, c, s.due, log)
	if err != nil {
		return nil, err
	}
	s.providers = providers
	cfg := secret.Config{Authorities: providers.Authorities, Observe: observe, Log: log}
	for _, entry := range c.Secrets {
		spec, wrong := wiring.Spec(entry, c.Rotation)
		err = errors.Join(err, wrong)
		cfg.Secrets = append(cfg.Secrets, spec)
	}
	if err == nil {
		s.Manager, err = secret.New(cfg)
		s.started.Store(s.Manager)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	ctx, s.stop = context.WithCancel(ctx)
	// What failed because of a provider is retried as soon as that is ready again.
	s.retrying.Go(func() { providers.Returned(ctx, s.Kick) })
	return s, nil
}

// due implements Due of Options of package pluginhost.
func (s *signed) due(name string) (end time.Time, due bool) {
	if m := s.started.Load(); m != nil {
		return m.Due(name)
	}
	return time.Time{}, false
}

// begin starts the providers and waits for none: the service is not ready until it holds
// its certificate.
func (s *signed) begin() { s.providers.Begin() }

// Close stops the requests, then the providers.
func (s *signed) Close() error {
	var err error
	if s.Manager != nil {
		s.stop()
		s.retrying.Wait()
		err = s.Manager.Close()
	}
	return errors.Join(err, s.providers.Close())
}
