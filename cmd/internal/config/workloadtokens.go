package config

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/authn/jwt"
	"github.com/countersign-dev/countersign/sdk/authn/tokenreview"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/token"
)

// WorkloadJWKS is the issuer whose keys verify the streams' tokens.
type WorkloadJWKS struct {
	// Issuer is the tokens' exact iss claim. Its keys are found by OpenID Connect
	// discovery, unless jwks_url or jwks_file is set.
	Issuer   string `json:"issuer"`
	JWKSURL  string `json:"jwks_url"`  // https.
	JWKSFile string `json:"jwks_file"` // read again every minute
	// Audiences are the agent's: a token must have one of them.
	Audiences []string `json:"audiences"`
	RootFile  string   `json:"root_file"` // PEM. Default: the system's roots.
}

// WorkloadTokenReview is the Kubernetes API server that reviews tokens.
type WorkloadTokenReview struct {
	URL      string `json:"url"`       // https, without a path.
	RootFile string `json:"root_file"` // PEM. Default: the system's roots.
	// TokenFile holds the agent's own credential, which must be allowed to create
	// tokenreviews. It is read for each review.
	TokenFile string `json:"token_file"`
	// Audiences are the agent's: a token must have one of them.
	Audiences []string `json:"audiences"`
}

// Config returns the settings of the verifier, which makes SPIFFE IDs of verified
// claims by the template.
func (j WorkloadJWKS) Config(template *identities.Template) jwt.Config {
	return jwt.Config{
		Issuer: j.Issuer, Audiences: j.Audiences, JWKSURL: j.JWKSURL, JWKSFile: j.JWKSFile, RootFile: j.RootFile, SPIFFEID: template.ID,
	}
}

// Config returns the settings of the reviewer.
func (r WorkloadTokenReview) Config() tokenreview.Config {
	return tokenreview.Config{URL: r.URL, RootFile: r.RootFile, Token: token.File{Path: r.TokenFile}, Audiences: r.Audiences}
}

// AccountClaims returns the claims of a reviewed service account, as its token has them.
func AccountClaims(namespace, account string) map[string]any {
	return map[string]any{
		"sub": "system:serviceaccount:" + namespace + ":" + account,
		"kubernetes.io": map[string]any{
			"namespace": namespace, "serviceaccount": map[string]any{"name": account},
		},
	}
}

// PodClaims returns the claims of a pod, as a token that is bound to it has them.
func PodClaims(namespace, account, name, uid, node string) map[string]any {
	claims := AccountClaims(namespace, account)
	if of, ok := claims["kubernetes.io"].(map[string]any); ok {
		of["pod"] = map[string]any{"name": name, "uid": uid}
		of["node"] = map[string]any{"name": node}
	}
	return claims
}

// checkVerifier validates the settings of the chosen verifier, and rejects those of others.
func (w Workloads) checkVerifier(template *identities.Template) error {
	switch {
	case w.VerifiedBy != ByJWKS && isSet(w.JWKS):
		return fmt.Errorf("workloads.jwks is set, and verified_by is %q: write %s there, or remove it", w.VerifiedBy, ByJWKS)
	case w.VerifiedBy != ByTokenReview && isSet(w.TokenReview):
		return fmt.Errorf("workloads.token_review is set, and verified_by is %q: write %s there, or remove it", w.VerifiedBy, ByTokenReview)
	case w.VerifiedBy == ByJWKS:
		if _, err := jwt.New(w.JWKS.Config(template)); err != nil {
			return fmt.Errorf("workloads.jwks: %w", err)
		}
	case w.VerifiedBy == ByTokenReview:
		return w.TokenReview.check(template)
	}
	return nil
}

func (r WorkloadTokenReview) check(template *identities.Template) error {
	if r.TokenFile == "" {
		return errors.New("workloads.token_review.token_file is not set: name the file with the agent's token for the API server")
	}
	if _, err := tokenreview.New(r.Config()); err != nil {
		return fmt.Errorf("workloads.token_review: %w", err)
	}
	if _, err := template.ID(AccountClaims("namespace", "account")); err != nil {
		return fmt.Errorf("workloads.spiffe_id: a token review has only kubernetes.io/namespace, kubernetes.io/serviceaccount/name and sub: %w", err)
	}
	return nil
}
