package agent

import (
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

// spireSource serves the secrets of a SPIFFE Workload API; without one, it serves no name.
type spireSource struct {
	secret.Source
	opened *spiresecret.Source // nil if there is none
}

func (s spireSource) close() error {
	if s.opened == nil {
		return nil
	}
	return s.opened.Close()
}

// lists returns who sends revocation lists: the source, or the Workload API as a provider.
func (s spireSource) lists(given *spireAuthority) lister {
	switch {
	case s.opened != nil:
		return s.opened
	case given != nil:
		return given
	}
	return nil
}

// openSpire connects to the Workload API of spire.secrets. The caller closes it.
func openSpire(c config.Spire, observe func(secret.Event), log *slog.Logger) (spireSource, error) {
	if len(c.Secrets) == 0 { // spiresecret has a default of its own
		return spireSource{Source: secret.First()}, nil
	}
	cfg := spiresecret.Config{Socket: c.Socket, UIDs: c.UIDs, Observe: observe, Log: log}
	for _, s := range c.Secrets {
		spec := spiresecret.Spec{Name: s.Name, Kind: secret.KeyPair, SPIFFEID: s.SPIFFEID, Hint: s.Hint, TrustDomain: s.TrustDomain}
		if s.Kind == config.TrustBundle {
			spec.Kind = secret.TrustBundle
		}
		cfg.Secrets = append(cfg.Secrets, spec)
		log.Info("taking a secret from a Workload API", "secret", s.Name, "selected", spec.String(), "socket", c.Socket)
	}
	opened, err := spiresecret.New(cfg)
	if err != nil {
		return spireSource{}, err
	}
	return spireSource{opened, opened}, nil
}

// spireAuthority is the Workload API as one of the providers of a secret; nil if it is not one.
type spireAuthority struct{ *spiresecret.Authority }

// openSpireAuthority returns it with the secrets that it has at the start of the agent.
func openSpireAuthority(c config.Config, log *slog.Logger) (*spireAuthority, error) {
	provided := c.SpireProvides()
	if len(provided) == 0 {
		return nil, nil
	}
	cfg := spiresecret.Config{Socket: c.Spire.Socket, UIDs: c.Spire.UIDs, Log: log}
	roots := spiresecret.Spec{Name: config.SpireProvider + " roots", Kind: secret.TrustBundle}
	for _, s := range provided {
		if s.Kind != config.KeyPair {
			continue // it has the same roots, beside those of others
		}
		id, err := pki.ParseSPIFFEID(s.SPIFFEID)
		if err != nil {
			return nil, err
		}
		roots.TrustDomain = id.Host // a Workload API has one trust domain of its own
		cfg.Secrets = append(cfg.Secrets, spiresecret.Spec{Name: s.Name, Kind: secret.KeyPair, SPIFFEID: s.SPIFFEID})
	}
	cfg.Secrets = append(cfg.Secrets, roots)
	opened, err := spiresecret.NewAuthority(cfg)
	if err != nil {
		return nil, err
	}
	return &spireAuthority{opened}, nil
}

// join adds it to the authorities. It decides how long its certificates live, and a change of its
// roots counts at once.
func (s *spireAuthority) join(cfg *agent.Config) {
	if s != nil {
		cfg.Authorities = append(cfg.Authorities, secret.Authority{
			Name: config.SpireProvider, Client: s.Authority, AcceptLongerTTL: new(true), RootOverlap: new(time.Duration),
		})
	}
}

// begin has the agent take what it sends.
func (s *spireAuthority) begin(a *agent.Agent) {
	if s != nil {
		s.Notify(func() { a.Retry(config.SpireProvider) })
	}
}

func (s *spireAuthority) close() error {
	if s == nil {
		return nil
	}
	return s.Close()
}
