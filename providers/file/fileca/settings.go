package fileca

import (
	"cmp"
	"errors"
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
	Dir string `json:"dir" address:"path" jsonschema:"folder with ca-cert.pem, ca-key.pem, cert-chain.pem and root-cert.pem"`
	// SelfSigned creates a self-signed root in Dir if there is no ca-cert.pem. Dir must then
	// belong to this user, and no other user may have write access. Default: false.
	SelfSigned bool `json:"self_signed,omitempty" jsonschema:"create a self-signed root in dir if there is no CA (default false)"`
	// KeyType is the type of the self-signed root's key, such as ml-dsa-65. A CA that is there
	// keeps its own. Default: ecdsa-p256.
	KeyType string `json:"key_type,omitempty" jsonschema:"type of the self-signed root's key, such as ml-dsa-65 (default ecdsa-p256)"`
	// MaxTTL is the longest lifetime of a certificate: requests for more get this, requests
	// without a TTL at most 24h. No certificate outlives its CA. Default: 24h.
	MaxTTL time.Duration `json:"max_ttl,omitempty" jsonschema:"longest lifetime of a certificate, such as 12h (default 24h)"`
	// TrustDomain is the only trust domain that SPIFFE IDs may have. Default: any.
	TrustDomain string `json:"trust_domain,omitempty" jsonschema:"only trust domain that SPIFFE IDs may have (default any)"`
	// PollInterval is how often the files are read in addition to file system events, which
	// network and overlay file systems do not always send. Default: 30s.
	PollInterval time.Duration `json:"poll_interval,omitempty" jsonschema:"how often to check the files in addition to file system events, such as 1m (default 30s)"`

	// Log gets each loaded CA, warnings and errors. Default: none.
	Log *slog.Logger `json:"-"`
}

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
	rootKey      pki.KeyType
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
	rootKey, err := pki.ParseKeyType(s.KeyType)
	switch {
	case err != nil:
		return limits{}, ca.Errorf(ca.Invalid, "%w", err)
	case s.KeyType != "" && !s.SelfSigned:
		return limits{}, ca.Errorf(ca.Invalid, "key_type is that of a self-signed root: set self_signed, too, or remove it")
	}
	if err := errors.Join(atLeast("max_ttl", s.MaxTTL, minTTL), atLeast("poll_interval", s.PollInterval, minPoll)); err != nil {
		return limits{}, err
	}
	return limits{cmp.Or(s.MaxTTL, defaultTTL), cmp.Or(s.PollInterval, defaultPoll), s.TrustDomain, rootKey}, nil
}

// atLeast refuses a duration that is set and too short.
func atLeast(setting string, d, least time.Duration) error {
	if d != 0 && d < least {
		return ca.Errorf(ca.Invalid, "%s is %s: want a duration of at least %s", setting, d, least)
	}
	return nil
}
