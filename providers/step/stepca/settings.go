// Package stepca signs by smallstep's step-ca: one-time tokens of a JWK provisioner,
// renewal by mutual TLS where a certificate is at hand, and the CA's roots.
package stepca

import (
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/rest"
)

const fingerprintSize = 32 // SHA-256

// Settings say where the CA is, how it is verified and by what right it is asked. The
// fields with a JSON name are the provider's settings.
type Settings struct {
	// URL is https://host[:port].
	URL string `json:"url" jsonschema:"where step-ca is: https://host:port"`
	// RootFile or RootFingerprint verify the server: one of them.
	RootFile        string `json:"root_file,omitempty" jsonschema:"PEM file with the roots to verify step-ca with, or SYSTEM for the operating system's; or else root_fingerprint"`
	RootFingerprint string `json:"root_fingerprint,omitempty" jsonschema:"SHA-256 of step-ca's root in hex, by which it is fetched, as in 'step ca bootstrap'; or else root_file"`

	// Provisioner is the name of a JWK provisioner, KeyFile its private key: a JWK, or one
	// that is encrypted with the password in PasswordFile. Without them the token of each
	// request is the one-time token.
	Provisioner  string `json:"provisioner,omitempty" jsonschema:"name of the JWK provisioner (default none: the request's token is the one-time token)"`
	KeyFile      string `json:"key_file,omitempty" jsonschema:"file with the provisioner's private JWK, as JSON or encrypted (JWE)"`
	PasswordFile string `json:"password_file,omitempty" jsonschema:"file with the password of an encrypted key_file"`
	// Audience is that of the one-time tokens, where step-ca has another name than URL has.
	Audience string `json:"audience,omitempty" jsonschema:"audience of the one-time tokens (default url/1.0/sign)"`

	// ClientCertFile and ClientKeyFile are a certificate of this CA, which the agent
	// writes out; with it the next one is asked for by mutual TLS, without a token.
	ClientCertFile string `json:"client_cert_file,omitempty" jsonschema:"PEM file with a certificate of this CA, by which the next one is asked for without a token while it is valid (default none)"`
	ClientKeyFile  string `json:"client_key_file,omitempty" jsonschema:"PEM file with the key of client_cert_file (default none)"`

	// MaxTTL is the longest life that is asked for: step-ca refuses more than its
	// provisioner allows. Default: 24h, as step-ca's own.
	MaxTTL string `json:"max_ttl,omitempty" jsonschema:"longest life that is asked for; more than the provisioner allows is refused (default 24h)"`

	// Log takes what is found while the CA is used. Default: silent.
	Log *slog.Logger `json:"-"`
}

// Validate checks the settings without looking at a file or the network. The error is
// of the reason [ca.Invalid].
func (s Settings) Validate() error {
	if _, err := rest.ParseURL(s.URL); err != nil {
		return ca.Errorf(ca.Invalid, "url: %w", err)
	}
	if err := s.checkRoot(); err != nil {
		return err
	}
	if (s.Provisioner == "") != (s.KeyFile == "") {
		return ca.Errorf(ca.Invalid, "provisioner is %q and key_file is %q: set both, or neither to have the request's token be the one-time token", s.Provisioner, s.KeyFile)
	}
	if s.PasswordFile != "" && s.KeyFile == "" {
		return ca.Errorf(ca.Invalid, "password_file is %q: it is that of key_file, which is not set", s.PasswordFile)
	}
	if _, err := s.maxTTL(); err != nil {
		return err
	}
	return s.pair().Check("client_cert_file", "client_key_file")
}

func (s Settings) checkRoot() error {
	if (s.RootFile == "") == (s.RootFingerprint == "") {
		return ca.Errorf(ca.Invalid, "root_file is %q and root_fingerprint is %q: set one of them", s.RootFile, s.RootFingerprint)
	}
	if s.RootFingerprint == "" {
		return nil
	}
	if sum, err := hex.DecodeString(s.fingerprint()); err != nil || len(sum) != fingerprintSize {
		return ca.Errorf(ca.Invalid, "root_fingerprint is %q: it has to be a SHA-256, 64 hexadecimal digits", s.RootFingerprint)
	}
	return nil
}

func (s Settings) fingerprint() string {
	return strings.ToLower(strings.ReplaceAll(s.RootFingerprint, ":", ""))
}

func (s Settings) pair() rest.Pair {
	return rest.Pair{CertFile: s.ClientCertFile, KeyFile: s.ClientKeyFile}
}

func (s Settings) maxTTL() (time.Duration, error) {
	if s.MaxTTL == "" {
		return 24 * time.Hour, nil
	}
	most, err := time.ParseDuration(s.MaxTTL)
	if err != nil || most <= 0 {
		return 0, ca.Errorf(ca.Invalid, "max_ttl is %q: it has to be a duration above zero, as in 24h", s.MaxTTL)
	}
	return most, nil
}

func (s Settings) audience() string {
	if s.Audience != "" {
		return s.Audience
	}
	return strings.TrimSuffix(s.URL, "/") + signPath
}
