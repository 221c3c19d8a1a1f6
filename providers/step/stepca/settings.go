// Package stepca is a client of smallstep's step-ca as a [ca.Client] and [ca.RootSource]:
// it signs with the one-time tokens of a JWK provisioner, renews by mutual TLS where there
// is a certificate, and fetches the CA's roots. countersign-provider-step serves it as a
// process; call [Open] to use it in another program.
package stepca

import (
	"cmp"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

const fingerprintSize = 32 // SHA-256

// Settings say where step-ca is, how to verify it and how to authenticate. The fields with
// a JSON name are the provider's settings.
type Settings struct {
	// URL is https://host[:port]. Required.
	URL setting.URL `json:"url" address:"url" jsonschema:"URL of step-ca, https://host:port"`
	// RootFile (PEM) or RootFingerprint (SHA-256 in hex) verifies the server. Exactly one of
	// them is required.
	RootFile        setting.File `json:"root_file,omitempty" jsonschema:"PEM file with the roots that verify step-ca, or SYSTEM for those of the operating system; set this or root_fingerprint"`
	RootFingerprint string       `json:"root_fingerprint,omitempty" jsonschema:"SHA-256 of step-ca's root in hex, to fetch the root by as 'step ca bootstrap' does; set this or root_file"`

	// Provisioner is the name of a JWK provisioner, and KeyFile its private key: a JWK in
	// JSON, or a JWE encrypted with the password in PasswordFile. Without them the token of
	// each request is sent as the one-time token.
	Provisioner  string       `json:"provisioner,omitempty" jsonschema:"name of the JWK provisioner (default: none; the request's token is used as the one-time token)"`
	KeyFile      setting.File `json:"key_file,omitempty" jsonschema:"file with the provisioner's private JWK, as JSON or encrypted (JWE)"`
	PasswordFile setting.File `json:"password_file,omitempty" jsonschema:"file with the password of an encrypted key_file"`
	// Audience is the audience of the one-time tokens, for a step-ca that is configured with
	// another name than URL has. Default: URL/1.0/sign.
	Audience string `json:"audience,omitempty" jsonschema:"audience of the one-time tokens (default url/1.0/sign)"`

	// ClientCertFile and ClientKeyFile (PEM) are a certificate of this CA that the agent
	// writes out. While it is valid, it requests its successor by mutual TLS, without a token.
	// Default: none.
	ClientCertFile string `json:"client_cert_file,omitempty" jsonschema:"PEM file with a certificate of this CA; while valid, it requests the next one without a token (default none)"`
	ClientKeyFile  string `json:"client_key_file,omitempty" jsonschema:"PEM file with the key of client_cert_file (default none)"`

	// MaxTTL is the longest lifetime that is requested: step-ca refuses more than its
	// provisioner allows. Default: 24h, as in step-ca.
	MaxTTL time.Duration `json:"max_ttl,omitempty" jsonschema:"longest lifetime to request; step-ca refuses more than the provisioner allows (default 24h)"`

	// Log gets warnings and debug records. Default: none.
	Log *slog.Logger `json:"-"`
}

// Validate checks what the types of the settings do not, without access to files or the
// network; [Open] checks all. The error has the reason [ca.Invalid].
func (s Settings) Validate() error {
	if err := s.URL.CheckSetting(""); err != nil {
		return ca.Errorf(ca.Invalid, "url: %w", err)
	}
	if err := s.checkRoot(); err != nil {
		return err
	}
	if (s.Provisioner == "") != (s.KeyFile == "") {
		return ca.Errorf(ca.Invalid, "provisioner is %q and key_file is %q: set both, or neither to send the request's token as the one-time token", s.Provisioner, s.KeyFile)
	}
	if s.PasswordFile != "" && s.KeyFile == "" {
		return ca.Errorf(ca.Invalid, "password_file is %q, but key_file is not set", s.PasswordFile)
	}
	if s.MaxTTL < 0 {
		return ca.Errorf(ca.Invalid, "max_ttl is %s: want a positive duration, such as 24h", s.MaxTTL)
	}
	if err := s.pair().Check("client_cert_file", "client_key_file"); err != nil {
		return ca.Errorf(ca.Invalid, "%w", err)
	}
	return nil
}

func (s Settings) checkRoot() error {
	if (s.RootFile == "") == (s.RootFingerprint == "") {
		return ca.Errorf(ca.Invalid, "root_file is %q and root_fingerprint is %q: set one of them", s.RootFile, s.RootFingerprint)
	}
	if s.RootFingerprint == "" {
		return nil
	}
	if sum, err := hex.DecodeString(s.fingerprint()); err != nil || len(sum) != fingerprintSize {
		return ca.Errorf(ca.Invalid, "root_fingerprint is %q: want a SHA-256, 64 hexadecimal digits", s.RootFingerprint)
	}
	return nil
}

func (s Settings) fingerprint() string {
	return strings.ToLower(strings.ReplaceAll(s.RootFingerprint, ":", ""))
}

func (s Settings) pair() setting.KeyPair {
	return setting.KeyPair{CertFile: s.ClientCertFile, KeyFile: s.ClientKeyFile}
}

func (s Settings) audience() string {
	return cmp.Or(s.Audience, s.URL.At(signPath))
}
