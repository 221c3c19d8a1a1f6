package agent

import (
	"log/slog"
	"path/filepath"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/cmd/internal/environ"
	"github.com/countersign-dev/countersign/sdk/filesecret"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// openFiles returns the source of secrets in files.
func openFiles(env environ.Vars, c config.Files, observe func(secret.Event), log *slog.Logger) (*filesecret.Source, error) {
	cfg := filesecret.Config{
		Folders: c.Folders, SystemRoots: systemRoots(env),
		CredentialFolder: c.CredentialFolder,
		Debounce:         c.Debounce.Duration, Observe: observe, Log: log,
	}
	for _, s := range c.Secrets {
		if c.CredentialFolder != "" && (s.Name == config.DefaultSecret || s.Name == config.RootCA) {
			continue // both come with the folder
		}
		cfg.Secrets = append(cfg.Secrets, filesecret.Spec{Name: s.Name, Chain: s.Chain, Key: s.Key, Roots: s.Roots})
		log.Info("serving a secret from files", "secret", s.Name, "chain", s.Chain, "roots", s.Roots)
	}
	return filesecret.New(cfg)
}

// systemRoots returns the places of system roots, by the variables of TLS libraries.
func systemRoots(env environ.Vars) []string {
	var places []string
	if file := env.Get("SSL_CERT_FILE"); file != "" {
		places = append(places, file)
	}
	return append(places, filepath.SplitList(env.Get("SSL_CERT_DIR"))...)
}

// anchor requires a "default" that a provider signs to chain to a ROOTCA of another program.
func anchor(specs []secret.Spec, c *config.Config, others secret.Source) {
	for i := range specs {
		if specs[i].Name == config.DefaultSecret && c.FromOthers(config.RootCA) {
			specs[i].Anchor = secret.Anchor(others, config.RootCA)
		}
	}
}
