package agent

import (
	"log/slog"

	"github.com/countersign-dev/countersign/plugin-host/cmd/countersign/config"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/spiresecret"
)

// openSpire returns the source of secrets of a SPIFFE Workload API, which knows no name if
// there is none. The caller closes it.
func openSpire(c config.Spire, observe func(secret.Event), log *slog.Logger) (source secret.Source, closeIt func() error, err error) {
	if c.Socket == "" {
		return secret.First(), func() error { return nil }, nil
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
		return nil, nil, err
	}
	return opened, opened.Close, nil
}
