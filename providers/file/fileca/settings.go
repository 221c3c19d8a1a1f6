package fileca

import (
	"log/slog"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Settings say which folder the authority is in and how it signs. The fields with
// a JSON name are the provider's settings.
type Settings struct {
	// Dir is the folder with ca-cert.pem, ca-key.pem, cert-chain.pem and
	// root-cert.pem. Required.
	Dir string `json:"dir" jsonschema:"the folder with ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem"`
	// SelfSigned makes a root of its own in Dir where there is no ca-cert.pem, and
	// uses that from then on. Dir must then belong to this user, and no other may
	// write to it. Default: false.
	SelfSigned bool `json:"self_signed,omitempty" jsonschema:"make a self-signed root in dir if there is no CA yet (default false)"`
	// MaxTTL is the longest lifetime of a certificate. Who asks for more gets
	// this, who asks for none gets this or 24h, whichever is shorter; the end of
	// the CA's own certificate is never passed. Default: 24h.
	MaxTTL Duration `json:"max_ttl,omitempty" jsonschema:"the longest lifetime of a certificate, such as 12h (default 24h)"`
	// TrustDomain is the only one that SPIFFE IDs may be of. Default: any.
	TrustDomain string `json:"trust_domain,omitempty" jsonschema:"the only trust domain that SPIFFE IDs may be of (default any)"`
	// PollInterval is how often the files are read beside the folder's events,
	// which network and overlay file systems do not always send. Default: 30s.
	PollInterval Duration `json:"poll_interval,omitempty" jsonschema:"how often to look for changed files beside the folder's events, such as 30s (default 30s)"`

	// Log takes what is found while the authority runs. Default: silent.
	Log *slog.Logger `json:"-"`
}

// Duration is a length of time as [time.ParseDuration] reads it, such as "24h".
// Empty means the default.
type Duration string

const (
	defaultTTL  = 24 * time.Hour // of a certificate for which none was asked
	defaultPoll = 30 * time.Second

	minTTL  = time.Second // X.509 counts whole seconds
	minPoll = 100 * time.Millisecond
)

// Validate checks the settings without looking at the folder. The error is of the
// reason [ca.Invalid].
func (s Settings) Validate() error {
	_, err := s.parse()
	return err
}

// limits are the settings in the form they are used in.
type limits struct {
	maxTTL, poll time.Duration
	trustDomain  string
}

func (s Settings) parse() (limits, error) {
	if s.Dir == "" {
		return limits{}, ca.Errorf(ca.Invalid, "dir is empty: name the folder with ca-cert.pem, ca-key.pem and root-cert.pem")
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
		return 0, ca.Errorf(ca.Invalid, "%s is %.256q: use a duration of at least %s, such as %q", setting, string(d), least, byDefault)
	}
	return parsed, nil
}
