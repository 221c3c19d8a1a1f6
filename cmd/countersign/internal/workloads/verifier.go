package workloads

import (
	"context"
	"errors"
	"log/slog"

	"github.com/countersign-dev/countersign/cmd/internal/config"
	"github.com/countersign-dev/countersign/sdk/authn"
	"github.com/countersign-dev/countersign/sdk/authn/jwt"
	"github.com/countersign-dev/countersign/sdk/authn/tokenreview"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/identities"
)

// verifier identifies the caller by the token of a stream, with an authenticator.
type verifier struct {
	by authn.Authenticator
	// spiffeID makes one for an identity that has none yet. Default: it has.
	spiffeID func(authn.Identity) (string, error)
}

// identifyBy fills in who verifies tokens. Whatever they claim is only asked for where
// that is the authority.
func identifyBy(identify *identities.Identify, w config.Workloads, log *slog.Logger) error {
	template, err := identities.ParseTemplate(w.SPIFFEID)
	if err != nil {
		return err
	}
	switch w.VerifiedBy {
	case config.ByJWKS:
		cfg := w.JWKS.Config(template)
		cfg.Log = log
		by, err := jwt.New(cfg)
		identify.Verifier = verifier{by: by}
		return err
	case config.ByTokenReview:
		by, err := tokenreview.New(w.TokenReview.Config())
		identify.Verifier = verifier{by, func(id authn.Identity) (string, error) {
			return template.ID(config.AccountClaims(id.Namespace, id.ServiceAccount))
		}}
		return err
	}
	identify.Claimed = template.Claimed
	return nil
}

// Verify implements [identities.Verifier].
func (v verifier) Verify(ctx context.Context, token ca.Token) (identities.Claim, error) {
	id, err := v.by.Authenticate(ctx, authn.Credential{Token: token})
	switch {
	case errors.Is(err, authn.ErrUnavailable):
		return identities.Claim{}, ca.Errorf(ca.Unavailable, "%w", err)
	case err != nil:
		return identities.Claim{}, ca.Errorf(ca.Unauthenticated, "%w", err)
	}
	if v.spiffeID != nil {
		if id.SPIFFEID, err = v.spiffeID(id); err != nil {
			return identities.Claim{}, ca.Errorf(ca.Unauthenticated, "%w", err)
		}
	}
	return identities.Claim{SPIFFEID: id.SPIFFEID, Expiry: id.Expiry}, nil
}
