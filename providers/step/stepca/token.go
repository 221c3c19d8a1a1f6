package stepca

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	tokenLife = 5 * time.Minute // as the step command's
	backdate  = time.Minute     // for clocks that are behind; step-ca allows the same
)

// claims are the claims of a one-time token (smallstep.com/docs/step-ca/provisioners/#jwk):
// sans are the names to certify, and cnf binds the token to one CSR.
type claims struct {
	jwt.Claims
	SANs         []string     `json:"sans"`
	Confirmation confirmation `json:"cnf"`
}

type confirmation struct {
	Fingerprint string `json:"x5rt#S256"`
}

// oneTimeToken returns a new token that is good for req once. Without a provisioner's key
// it returns the token of the request.
func (c *CA) oneTimeToken(req ca.SignRequest, now time.Time) (ca.Token, error) {
	if c.settings.KeyFile == "" {
		if req.Token == "" {
			return "", ca.Errorf(ca.Unauthenticated, "no one-time token: set provisioner and key_file, or the provider's token source")
		}
		return req.Token, nil
	}
	key, err := c.settings.key()
	if err != nil {
		return "", ca.Errorf(ca.Unavailable, "key_file: %w", err)
	}
	opts := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", key.KeyID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key.Key}, opts)
	if err != nil {
		return "", ca.Errorf(ca.Invalid, "key_file: %s cannot sign with %q: %w", c.settings.KeyFile, key.Algorithm, err)
	}
	text, err := jwt.Signed(signer).Claims(c.claims(req, now)).Serialize()
	if err != nil {
		return "", ca.Errorf(ca.Internal, "make a one-time token: %w", err)
	}
	return ca.Token(text), nil
}

func (c *CA) claims(req ca.SignRequest, now time.Time) claims {
	names := append([]string{}, req.DNSNames...)
	for _, ip := range req.IPAddresses {
		names = append(names, ip.String())
	}
	if req.SubjectID != "" {
		names = append(names, req.SubjectID)
	}
	return claims{
		Claims: jwt.Claims{
			// The subject becomes the certificate's common name, which has 64 characters at
			// most (RFC 5280, appendix A.1).
			ID: uuid.NewString(), Issuer: c.settings.Provisioner, Subject: req.ID, Audience: jwt.Audience{c.settings.audience()},
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now.Add(-backdate)), Expiry: jwt.NewNumericDate(now.Add(tokenLife)),
		},
		SANs:         names,
		Confirmation: confirmation{fingerprint(req.CSR)},
	}
}

// fingerprint returns the fingerprint of a CSR in PEM, or "" for anything else, which
// step-ca refuses.
func fingerprint(csr []byte) string {
	request, err := pki.ParseCSR(csr)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(request.Raw)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// key reads the provisioner's key. Errors do not quote it.
func (s Settings) key() (*jose.JSONWebKey, error) {
	text, err := s.KeyFile.Read()
	if err != nil {
		return nil, err
	}
	if text, err = s.decrypt(bytes.TrimSpace(text)); err != nil {
		return nil, err
	}
	var key jose.JSONWebKey
	switch err := json.Unmarshal(text, &key); {
	case err != nil || key.Key == nil:
		return nil, ca.Errorf(ca.Invalid, "%s is not a JWK", s.KeyFile)
	case key.IsPublic() || !key.Valid():
		return nil, ca.Errorf(ca.Invalid, "%s is a public key, want the provisioner's private key", s.KeyFile)
	case key.KeyID == "":
		return nil, ca.Errorf(ca.Invalid, "%s has no key id (kid)", s.KeyFile)
	}
	key.Algorithm = cmp.Or(key.Algorithm, string(jose.ES256))
	return &key, nil
}

// decrypt opens a JWE as the step command writes it (PBES2). Without a password file it
// returns text unchanged.
func (s Settings) decrypt(text []byte) ([]byte, error) {
	if s.PasswordFile == "" {
		return text, nil
	}
	password, err := s.PasswordFile.Read()
	if err != nil {
		return nil, err
	}
	object, err := jose.ParseEncrypted(string(text),
		[]jose.KeyAlgorithm{jose.PBES2_HS256_A128KW, jose.PBES2_HS384_A192KW, jose.PBES2_HS512_A256KW},
		[]jose.ContentEncryption{jose.A128GCM, jose.A192GCM, jose.A256GCM, jose.A128CBC_HS256, jose.A256CBC_HS512})
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "%s is not a JWK encrypted with a password; remove password_file if it is not encrypted", s.KeyFile)
	}
	plain, err := object.Decrypt(bytes.TrimRight(password, "\r\n"))
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "the password in %s does not decrypt %s", s.PasswordFile, s.KeyFile)
	}
	return plain, nil
}
