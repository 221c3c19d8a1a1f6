package fileca

import (
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Settings say which folder holds the authority and how it signs. The fields with a JSON name
// are the provider's settings.
type Settings struct {
	// Dir is the folder with ca-cert.pem, ca-key.pem, cert-chain.pem and
	// root-cert.pem. Required.
	Dir string `json:"dir" jsonschema:"folder with ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem"`
	// SelfSigned creates a self-signed root in Dir if there is no ca-cert.pem. Dir must then
	// belong to this user, and nobody else may have write access. Default: false.
	SelfSigned bool `json:"self_signed,omitempty" jsonschema:"create a self-signed root in dir if there is no CA (default false)"`
	// MaxTTL is the longest lifetime of a certificate: requests for more get this, requests
	// without a TTL at most 24h. No certificate outlives its CA. Default: 24h.
	MaxTTL Duration `json:"max_ttl,omitempty" jsonschema:"longest lifetime of a certificate, such as 12h (default 24h)"`
	// TrustDomain is the only trust domain that SPIFFE IDs may have. Default: any.
	TrustDomain string `json:"trust_domain,omitempty" jsonschema:"only trust domain that SPIFFE IDs may have (default any)"`
	// PollInterval is how often the files are read in addition to file system events, which
	// network and overlay file systems do not always send. Default: 30s.
	PollInterval Duration `json:"poll_interval,omitempty" jsonschema:"how often to check the files in addition to file system events, such as 1m (default 30s)"`

	// Log gets each loaded CA, warnings and errors. Default: none.
	Log *slog.Logger `json:"-"`
}

// Duration is a duration in the format of [time.ParseDuration], such as "24h". Empty means the
// default.
type Duration string

const (
	defaultTTL  = 24 * time.Hour // of a request without a TTL
	defaultPoll = 30 * time.Second

	minTTL  = time.Second // X.509 counts whole seconds
	minPoll = 100 * time.Millisecond
)

// Validate checks the settings without access to the folder. The error has the reason
// [ca.Invalid].
func (s Settings) Validate() error {
	_, err := s.parse()
	return err
}

// limits are the parsed settings.
type limits struct {
	maxTTL, poll time.Duration
	trustDomain  string
}

func (s Settings) parse() (limits, error) {
	if s.Dir == "" {
		return limits{}, ca.Errorf(ca.Invalid, "dir is not set: name the folder with ca-cert.pem, ca-key.pem and root-cert.pem")
	}
	if s.TrustDomain != "" {
		if err := pki.CheckTrustDomain(s.TrustDomain); err != nil {
			return limits{}, ca.Errorf(ca.Invalid, "trust_domain: %w", err)
		}
	}
	maxTTL, err := s.MaxTTL.parse("max_ttl", defaultTTL, minTTL)
	if err != nil {
		return limits{}, err
	}
	poll, err := s.PollInterval.parse("poll_interval", defaultPoll, minPoll)
	return limits{maxTTL, poll, s.TrustDomain}, err
}

func (d Duration) parse(setting string, byDefault, least time.Duration) (time.Duration, error) {
	if d == "" {
		return byDefault, nil
	}
	parsed, err := time.ParseDuration(string(d))
	if err != nil || parsed < least {
		return 0, ca.Errorf(ca.Invalid, "%s is %.256q: want a duration of at least %s, such as %q", setting, string(d), least, byDefault)
	}
	return parsed, nil
}
