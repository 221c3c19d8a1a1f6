package conformance

import (
	"cmp"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Kit is what only the author knows. The zero value is for a provider that needs no
// settings and signs for anybody.
type Kit struct {
	// Settings are good ones. Default: none.
	Settings map[string]any `json:"settings,omitempty"`
	// WrongSettings are refused by what the author's own check says of them.
	WrongSettings map[string]any `json:"wrong_settings,omitempty"`
	// Identity is one that is signed. Default: spiffe://example.org/ns/kit/sa/conformance.
	Identity Names `json:"identity,omitzero"`
	// RefusedIdentity is one that is not.
	RefusedIdentity Names `json:"refused_identity,omitzero"`
	// NameCheck is how close the names of a certificate come to those asked for:
	// exact, trust-domain or any. Default: exact.
	NameCheck string `json:"name_check,omitempty"`
	// Keys are the kinds of key to ask for. Default: ecdsa-p256, ecdsa-p384, rsa-2048
	// and ed25519; one that is refused as invalid is no fault.
	Keys []pki.KeyType `json:"keys,omitempty"`
	// TTL is the lifetime to ask for. Default: 1h.
	TTL Duration `json:"ttl,omitempty"`
	// FixedLifetime says that the authority gives what lifetime it likes.
	FixedLifetime bool `json:"fixed_lifetime,omitempty"`
	// Token is one that is taken. Default: one made up, for authorities that do not
	// look at it.
	Token ca.Token `json:"-"`
	// RefusedToken is one that is not taken, an expired one for instance.
	RefusedToken ca.Token `json:"-"`
	// TokenRequired says that nothing is signed without a token.
	TokenRequired bool `json:"token_required,omitempty"`
	// Exchange is a request that is granted; RefusedSubjectToken a token that is not
	// exchanged.
	Exchange            ca.TokenRequest `json:"-"`
	RefusedSubjectToken ca.Token        `json:"-"`
	// CallTimeout bounds one call. Default: 10s.
	CallTimeout Duration `json:"call_timeout,omitempty"`
}

// Names are what a certificate is asked for.
type Names struct {
	SPIFFEID    string   `json:"spiffe_id,omitempty"`
	DNSNames    []string `json:"dns_names,omitempty"`
	IPAddresses []string `json:"ip_addresses,omitempty"`
}

func (n Names) none() bool { return n.SPIFFEID == "" && len(n.DNSNames)+len(n.IPAddresses) == 0 }

// Duration is written as in "90s".
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// madeUp is no token of anybody's: a provider that shows it anywhere shows others, too.
const madeUp = "eyJ.conformance-kit-made-this-token-up.4f1c8d0b9a7e"

func (k Kit) withDefaults() Kit {
	if k.Identity.none() {
		k.Identity.SPIFFEID = "spiffe://example.org/ns/kit/sa/conformance"
	}
	if k.Keys == nil {
		k.Keys = []pki.KeyType{pki.ECDSAP256, pki.ECDSAP384, pki.RSA2048, pki.Ed25519}
	}
	k.TTL = cmp.Or(k.TTL, Duration(time.Hour))
	k.Token = cmp.Or(k.Token, madeUp)
	k.CallTimeout = cmp.Or(k.CallTimeout, Duration(10*time.Second))
	return k
}

// limit bounds one check: it makes many calls at once, and few in a row.
func (k Kit) limit() time.Duration { return 4 * time.Duration(k.CallTimeout) }

func (k Kit) nameCheck() pki.NameCheck {
	return map[string]pki.NameCheck{"trust-domain": pki.TrustDomainName, "any": pki.AnyName}[k.NameCheck]
}
