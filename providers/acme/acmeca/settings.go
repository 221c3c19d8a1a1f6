// Package acmeca gets certificates for DNS names and IP addresses by ACME (RFC 8555) as a
// [ca.Client], [ca.RootSource] and [ca.RenewalAdvisor] (RFC 9773): it keeps an account,
// answers challenges and drives orders, which outlast a call. countersign-provider-acme
// serves it as a process; call [Open] to use it in another program.
package acmeca

import (
	"cmp"
	"encoding/base64"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/provider/setting"
)

// The challenges.
const (
	HTTP01    = "http-01"
	TLSALPN01 = "tls-alpn-01"
	DNS01     = "dns-01"
)

// Settings say where the CA is, which account to use and how to answer its challenges. The
// fields with a JSON name are the provider's settings.
type Settings struct {
	// URL is the CA's directory. Required.
	URL setting.URL `json:"url" address:"url" jsonschema:"URL of the CA's directory, such as https://acme-v02.api.letsencrypt.org/directory"`
	// TLS verifies the CA's server.
	setting.TLS
	// StateDir is a folder of this provider alone, for the account's key and the orders. It is
	// made if it does not exist. Required.
	StateDir string `json:"state_dir" jsonschema:"absolute path of a folder for the account's key (account.pem) and the orders; made if it does not exist"`
	// Roots has the roots of the certificates (PEM), or is [setting.SystemRoots]: then a reply
	// has the one root of the system that its chain leads to. Default: those of the system.
	Roots setting.Certificates `json:"roots,omitempty" jsonschema:"PEM file with the roots of the certificates, or the PEM text, or SYSTEM: the root among those of the operating system that a chain leads to (default SYSTEM)"`

	// AcceptTerms agrees to the CA's terms of service. Default: false.
	AcceptTerms bool `json:"accept_terms,omitempty" jsonschema:"agree to the CA's terms of service; required if it has any (default false)"`
	// Contact is an e-mail address for the account. Default: none.
	Contact string `json:"contact,omitempty" jsonschema:"e-mail address that the CA may write to (default none)"`
	// EAB binds a new account to one that the CA already has. Default: none.
	EAB EAB `json:"eab,omitzero" jsonschema:"external account binding, for a CA that asks for one (default none)"`
	// RolloverAfter is the age at which the account's key is replaced. Default: never.
	RolloverAfter time.Duration `json:"rollover_after,omitempty" jsonschema:"age at which the account's key is replaced, such as 2160h (default never)"`
	// Profile is one of the profiles that the CA's directory lists. Default: the CA's.
	Profile string `json:"profile,omitempty" jsonschema:"certificate profile, one of those in the CA's directory, such as shortlived (default the CA's choice)"`

	// Challenge is how the names are proved. Default: [HTTP01].
	Challenge string `json:"challenge" default:"http-01" enum:"http-01,tls-alpn-01,dns-01" jsonschema:"how to prove the names"`
	// Listen is the address that answers http-01 or tls-alpn-01, while an order needs it.
	// Default: :80 or :443.
	Listen string `json:"listen,omitempty" jsonschema:"host:port that answers http-01 or tls-alpn-01, open while an order needs it (default :80 or :443)"`
	// Webroot is the folder of a web server that answers http-01 instead. Default: none.
	Webroot string `json:"webroot,omitempty" jsonschema:"absolute path of the folder that a web server serves on port 80; http-01 is answered by files in it (default none: listen)"`
	// DNSCommand adds and removes a TXT record; see README.md. Required for dns-01.
	DNSCommand []string `json:"dns_command,omitempty" jsonschema:"program and arguments that add or remove a TXT record: 'present' or 'cleanup', the record's name and its value follow (dns-01)"`
	// DNSTimeout bounds one run of DNSCommand. Default: 2m.
	DNSTimeout time.Duration `json:"dns_timeout,omitempty" jsonschema:"time for one run of dns_command (default 2m)"`
	// DNSWait is the time from the last record to the CA's look at them. Default: 0.
	DNSWait time.Duration `json:"dns_wait,omitempty" jsonschema:"time to wait after dns_command, for all DNS servers to have the record (default 0)"`
	// OrderTimeout ends an order that is still not done. Default: 10m.
	OrderTimeout time.Duration `json:"order_timeout,omitempty" jsonschema:"time after which an order is given up; it goes on while calls come and go (default 10m)"`

	// Log gets warnings and debug records. Default: none.
	Log *slog.Logger `json:"-"`
}

// EAB is an external account binding (RFC 8555, section 7.3.4). Both fields come from the CA.
type EAB struct {
	KeyID  string `json:"key_id,omitempty" jsonschema:"key identifier that the CA gave"`
	MACKey string `json:"mac_key,omitempty" secret:"true" jsonschema:"MAC key that the CA gave, in base64url"`
}

func (b EAB) mac() ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(b.MACKey), "="))
}

// Validate checks what the types of the settings do not, without access to files or the
// network; [Open] checks all. The error has the reason [ca.Invalid].
func (s Settings) Validate() error {
	if !filepath.IsAbs(s.StateDir) {
		return ca.Errorf(ca.Invalid, "state_dir is %q: want the absolute path of a folder", s.StateDir)
	}
	if s.Contact != "" && (!strings.Contains(s.Contact, "@") || strings.ContainsAny(s.Contact, ":,?& \r\n")) {
		return ca.Errorf(ca.Invalid, "contact is %q: want one e-mail address", s.Contact)
	}
	if err := s.EAB.valid(); err != nil {
		return err
	}
	return s.checkChallenge()
}

// leastMAC is that of HS256, which binds the account (RFC 7518, section 3.2).
const leastMAC = 32

func (b EAB) valid() error {
	if b == (EAB{}) {
		return nil
	}
	mac, err := b.mac()
	if err != nil || b.KeyID == "" || b.MACKey == "" {
		return ca.Errorf(ca.Invalid, "eab: set key_id and mac_key, which is base64url, or neither")
	}
	if len(mac) < leastMAC {
		return ca.Errorf(ca.Invalid, "eab.mac_key has %d bytes: want at least %d, as HS256 demands; copy it whole", len(mac), leastMAC)
	}
	return nil
}

func (s Settings) checkChallenge() error {
	switch s.challenge() {
	case HTTP01, TLSALPN01, DNS01:
	default:
		return ca.Errorf(ca.Invalid, "challenge is %q: want http-01, tls-alpn-01 or dns-01", s.Challenge)
	}
	switch {
	case s.Webroot != "" && s.challenge() != HTTP01:
		return ca.Errorf(ca.Invalid, "webroot is for http-01; challenge is %q", s.Challenge)
	case s.Webroot != "" && !filepath.IsAbs(s.Webroot):
		return ca.Errorf(ca.Invalid, "webroot is %q: want the absolute path of a folder", s.Webroot)
	case s.Listen != "" && (s.Webroot != "" || s.challenge() == DNS01):
		return ca.Errorf(ca.Invalid, "listen is %q, but webroot or dns-01 answers the challenges: unset one", s.Listen)
	case (len(s.DNSCommand) > 0) != (s.challenge() == DNS01):
		return ca.Errorf(ca.Invalid, "challenge is %q and dns_command has %d words: dns-01 needs a command, the others take none", s.challenge(), len(s.DNSCommand))
	case len(s.DNSCommand) > 0 && !filepath.IsAbs(s.DNSCommand[0]):
		return ca.Errorf(ca.Invalid, "dns_command begins with %q: want the absolute path of a program", s.DNSCommand[0])
	}
	if _, _, err := net.SplitHostPort(s.listen()); err != nil {
		return ca.Errorf(ca.Invalid, "listen is %q: want host:port or :port", s.Listen)
	}
	return nil
}

func (s Settings) challenge() string { return cmp.Or(s.Challenge, HTTP01) }

func (s Settings) listen() string {
	usual := ":80"
	if s.challenge() == TLSALPN01 {
		usual = ":443"
	}
	return cmp.Or(s.Listen, usual)
}

func (s Settings) system() bool { return s.Roots == "" || s.Roots == setting.SystemRoots }

func (s Settings) dnsTimeout() time.Duration { return cmp.Or(s.DNSTimeout, 2*time.Minute) }
