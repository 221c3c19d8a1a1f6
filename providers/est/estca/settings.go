// Package estca is a client of Enrollment over Secure Transport, EST (RFC 7030 and RFC 8951),
// as a [ca.Client] and [ca.RootSource]: it enrolls with a password or a client certificate,
// and re-enrolls with the certificate that is held. countersign-provider-est serves it as a
// process; call [Open] to use it in another program.
package estca

import (
	"log/slog"
	"regexp"
	"strings"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// Settings say where the EST server is, how to verify it and how to authenticate. The fields
// with a JSON name are the provider's settings.
type Settings struct {
	// URL is https://host[:port]; paths begin with /.well-known/est below it. Required.
	URL setting.URL `json:"url" address:"url" jsonschema:"URL of the EST server, https://host:port, without /.well-known/est"`
	// Label chooses one of the server's CAs (RFC 7030, section 3.2.2). Default: none.
	Label string `json:"label,omitempty" jsonschema:"label of the CA on the server: the path segment after /.well-known/est (default none)"`
	// TLS verifies the server, and has the client certificate to enroll with.
	setting.TLS

	// Username is for HTTP Basic authentication. Default: none.
	Username string `json:"username,omitempty" jsonschema:"user name for HTTP Basic authentication (default none)"`
	// PasswordFile has the password; a line break at its end does not count. Default: the
	// token of each request is the password.
	PasswordFile setting.File `json:"password_file,omitempty" jsonschema:"file with the password of username, read for each use (default the request's token)"`

	// HeldCertFile and HeldKeyFile (PEM) are a certificate of this CA that the agent writes
	// out. While it is valid and has the names of the request, it requests its successor by
	// simplereenroll. Default: none.
	HeldCertFile string `json:"held_cert_file,omitempty" jsonschema:"PEM file with a certificate of this CA, which the agent writes; while valid, it requests the next one by simplereenroll (default none)"`
	HeldKeyFile  string `json:"held_key_file,omitempty" jsonschema:"PEM file with the key of held_cert_file (default none)"`

	// BundleFile is a PEM file with the roots of the certificates, for a server whose cacerts
	// has none. Default: the self-signed certificates of cacerts.
	BundleFile setting.Certificates `json:"bundle_file,omitempty" jsonschema:"PEM file with the roots of the certificates, read for each use, or the PEM text, for a server whose cacerts has no root (default the roots of cacerts)"`

	// Log gets warnings and debug records. Default: none.
	Log *slog.Logger `json:"-"`
}

// The operations (RFC 7030, section 3.2.2).
const (
	cacerts  = "cacerts"
	csrattrs = "csrattrs"
	enroll   = "simpleenroll"
	reenroll = "simplereenroll"
)

const maxPassword = 64 << 10

var (
	label    = regexp.MustCompile(`^[A-Za-z0-9_~-][A-Za-z0-9_.~-]*$`)
	reserved = map[string]bool{cacerts: true, csrattrs: true, enroll: true, reenroll: true, "fullcmc": true, "serverkeygen": true}
)

// Validate checks what the types of the settings do not, without access to files or the
// network; [Open] checks all. The error has the reason [ca.Invalid].
func (s Settings) Validate() error {
	if err := s.URL.CheckSetting(""); err != nil {
		return ca.Errorf(ca.Invalid, "url: %w", err)
	}
	switch {
	case s.Label != "" && (!label.MatchString(s.Label) || reserved[s.Label]):
		return ca.Errorf(ca.Invalid, "label is %.256q: want letters, digits, '-', '_', '.' and '~', and no operation of EST", s.Label)
	case strings.Contains(s.URL.Path, "/.well-known"):
		return ca.Errorf(ca.Invalid, "url has the path %.256q: write it without /.well-known/est, and a CA's label as label", s.URL.Path)
	case strings.ContainsFunc(s.Username, func(r rune) bool { return r == ':' || r < ' ' || r == 0x7f }):
		return ca.Errorf(ca.Invalid, "username is %.256q: it takes no colon and no control characters", s.Username)
	case s.PasswordFile != "" && s.Username == "":
		return ca.Errorf(ca.Invalid, "password_file is %q, but username is not set", s.PasswordFile)
	}
	if err := s.held().Check("held_cert_file", "held_key_file"); err != nil {
		return ca.Errorf(ca.Invalid, "%w", err)
	}
	return nil
}

func (s Settings) held() setting.KeyPair {
	return setting.KeyPair{CertFile: s.HeldCertFile, KeyFile: s.HeldKeyFile}
}

func (s Settings) path(operation string) string {
	if s.Label == "" {
		return "/.well-known/est/" + operation
	}
	return "/.well-known/est/" + s.Label + "/" + operation
}

// password returns the password of Username.
func (s Settings) password(given ca.Token) (ca.Token, error) {
	if s.PasswordFile == "" {
		if given == "" {
			return "", ca.Errorf(ca.Unauthenticated, "the request has no token, which is the password of %q: configure the provider's token, or set password_file", s.Username)
		}
		return given, nil
	}
	text, err := s.PasswordFile.Read()
	if err != nil {
		return "", ca.Errorf(ca.Unavailable, "password_file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" || len(password) > maxPassword {
		return "", ca.Errorf(ca.Unavailable, "password_file: %s has %d bytes: want a password of 1 to %d", s.PasswordFile, len(password), maxPassword)
	}
	return ca.Token(password), nil
}
