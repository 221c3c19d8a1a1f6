package program

import (
	"fmt"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/countersign-discovery/internal/config"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/authn/jwt"
)

// authenticators returns the authenticators in configured order; reviews verifies the tokens
// of each Kubernetes cluster.
func authenticators(c config.Config, t *trust, reviews authn.Clusters, log *slog.Logger) (authn.Ordered, error) {
	var all authn.Ordered
	for i, a := range c.Authenticators {
		named := authn.Named{Name: a.Kind}
		switch a.Kind {
		case config.ByCertificate:
			named.Authenticator = authn.Certificates{Roots: t.Roots}
		case config.ByKubernetes:
			named.Authenticator = reviews
		case config.ByJWT:
			named.Name = "jwt " + a.Issuer
			verifier, err := jwt.New(jwt.Config{
				Issuer: a.Issuer, Audiences: a.Audiences, JWKSURL: a.JWKSURL, JWKSFile: a.JWKSFile, RootFile: a.RootFile,
				ServiceAccounts: a.ServiceAccounts, TrustDomain: a.TrustDomain,
				Log: log,
			})
			if err != nil {
				return nil, fmt.Errorf("authenticators.%d: %w", i, err)
			}
			named.Authenticator = verifier
		}
		all = append(all, named)
	}
	return all, nil
}
