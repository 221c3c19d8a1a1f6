package conformance

import (
	"cmp"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Kit holds input that only the author has. The zero value suits a provider that needs no
// settings and signs for anyone.
type Kit struct {
	// Settings are valid settings. A secret one may be a reference, as in a configuration of the
	// agent: see [Session.Resolve]. Default: none.
	Settings map[string]any `json:"settings,omitempty"`
	// Dir is where the relative paths of such references begin. Default: the current folder.
	Dir string `json:"-"`
	// WrongSettings fail the author's own validation.
	WrongSettings map[string]any `json:"wrong_settings,omitempty"`
	// Identity is one that the CA signs. Default: spiffe://example.org/ns/kit/sa/conformance.
	Identity Names `json:"identity,omitzero"`
	// RefusedIdentity is one that the CA refuses.
	RefusedIdentity Names `json:"refused_identity,omitzero"`
	// NameCheck is how closely a certificate's names must match the request: exact,
	// trust-domain or any. Default: as the provider's metadata state, else exact.
	NameCheck string `json:"name_check,omitempty"`
	// Keys are the key types to request. Default: ecdsa-p256, ecdsa-p384, rsa-2048 and
	// ed25519; refusing one as invalid is allowed.
	Keys []pki.KeyType `json:"keys,omitempty"`
	// TTL is the lifetime to request. Default: 1h.
	TTL Duration `json:"ttl,omitempty"`
	// FixedLifetime means that the CA chooses the lifetime. Default: as the metadata state.
	FixedLifetime bool `json:"fixed_lifetime,omitempty"`
	// Token is a valid token. Default: a made-up one, for CAs that ignore it.
	Token ca.Token `json:"-"`
	// RefusedToken is an invalid token, for example an expired one.
	RefusedToken ca.Token `json:"-"`
	// TokenRequired means that nothing is signed without a token. Default: as the metadata
	// state.
	TokenRequired bool `json:"token_required,omitempty"`
	// TokenIgnored means that the CA ignores tokens: the checks of refused and missing ones are
	// not run, and no entry is missed for them. A token is sent all the same, which must not leak.
	TokenIgnored bool `json:"token_ignored,omitempty"`
	// Exchange is a token request that succeeds; RefusedSubjectToken is a token whose
	// exchange fails.
	Exchange            ca.TokenRequest `json:"-"`
	RefusedSubjectToken ca.Token        `json:"-"`
	// AbilitiesOff are declared abilities that the settings turn off, such as token-exchanger:
	// they return unimplemented, and their checks are not run.
	AbilitiesOff []string `json:"abilities_off,omitempty"`
	// CallTimeout limits one call, and the start of a process. Default: 10s.
	CallTimeout Duration `json:"call_timeout,omitempty"`
	// Env are variables for a process. A value has those of its own process.
	Env map[string]string `json:"env,omitempty"`
}

// Names are the names to request in a certificate.
type Names struct {
	SPIFFEID    string   `json:"spiffe_id,omitempty"`
	DNSNames    []string `json:"dns_names,omitempty"`
	IPAddresses []string `json:"ip_addresses,omitempty"`
}

func (n Names) none() bool { return n.SPIFFEID == "" && len(n.DNSNames)+len(n.IPAddresses) == 0 }

// Duration is written in Go's format, as in "90s".
type Duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// madeUp is an invalid token: a provider that leaks it leaks others, too.
const madeUp = "eyJ.conformance-kit-made-this-token-up.4f1c8d0b9a7e"

// madeUpLeaf is a block of the right type that no authority issued.
const madeUpLeaf = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"

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

// limit bounds one check, which makes many parallel calls but few in sequence.
func (k Kit) limit() time.Duration { return 4 * time.Duration(k.CallTimeout) }

// off reports whether the kit's settings turn off an ability.
func (k Kit) off(a wire.Ability) bool { return slices.Contains(k.AbilitiesOff, a.String()) }
