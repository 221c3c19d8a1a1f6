package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
	providerv1 "github.com/countersign-dev/countersign/proto/provider/v1"
	"github.com/countersign-dev/countersign/sdk/ca"
)

// The limits of a provider's metadata: bytes of version and schema, numbers of the others.
const (
	maxVersion     = 64
	maxSchema      = 256 << 10
	maxAbilities   = 64
	maxDiagnostics = 64
)

// Ability is a service that a provider implements, or for NamesFromRequest how it signs.
type Ability int32

// The abilities, numbered as in provider.proto.
const (
	CertificateAuthority = Ability(providerv1.Ability_ABILITY_CERTIFICATE_AUTHORITY)
	RootSource           = Ability(providerv1.Ability_ABILITY_ROOT_SOURCE)
	RootWatcher          = Ability(providerv1.Ability_ABILITY_ROOT_WATCHER)
	TokenExchanger       = Ability(providerv1.Ability_ABILITY_TOKEN_EXCHANGER)
	NamesFromRequest     = Ability(providerv1.Ability_ABILITY_NAMES_FROM_REQUEST)
	RenewalInfo          = Ability(providerv1.Ability_ABILITY_RENEWAL_INFO)
	RevocationSource     = Ability(providerv1.Ability_ABILITY_REVOCATION_SOURCE)
	JWTSVID              = Ability(providerv1.Ability_ABILITY_JWT_SVID)
	// WITSVID is experimental.
	WITSVID = Ability(providerv1.Ability_ABILITY_WIT_SVID)
)

var abilityNames = map[Ability]string{
	CertificateAuthority: "certificate-authority",
	RootSource:           "root-source",
	RootWatcher:          "root-watcher",
	TokenExchanger:       "token-exchanger",
	NamesFromRequest:     "names-from-request",
	RenewalInfo:          "renewal-info",
	RevocationSource:     "revocation-source",
	JWTSVID:              "jwt-svid",
	WITSVID:              "wit-svid",
}

// String returns the name of the ability, such as "root-source".
func (a Ability) String() string {
	if name, ok := abilityNames[a]; ok {
		return name
	}
	return fmt.Sprintf("ability-%d", int32(a))
}

// Metadata describes a provider.
type Metadata struct {
	// Name is the name in countersign-provider-<name>: [a-z0-9][a-z0-9-]{0,62}.
	Name string
	// Version is up to the author: 1 to 64 printable bytes.
	Version string
	// Abilities has no duplicates and always contains CertificateAuthority.
	Abilities []Ability
	// SettingsSchema is a JSON Schema, draft 2020-12. Empty means no settings.
	SettingsSchema string
	// Facts are what the provider knows about its authority.
	Facts ca.Facts
}

// Has reports whether the provider has an ability.
func (m Metadata) Has(a Ability) bool { return slices.Contains(m.Abilities, a) }

// Lacks returns nil if the provider has an ability, and [ca.ErrUnimplemented] if not.
func (m Metadata) Lacks(a Ability) error {
	if m.Has(a) {
		return nil
	}
	return ca.Errorf(ca.Unimplemented, "the provider lacks the ability %q", a)
}

// Check returns an error if the metadata are invalid.
func (m Metadata) Check() error {
	switch {
	case !ValidName(m.Name):
		return fmt.Errorf("the provider calls itself %q, a name is 1 to 63 of a-z, 0-9 and -, not beginning with -", CleanText(m.Name, ""))
	case m.Version == "" || len(m.Version) > maxVersion || CleanText(m.Version, "") != m.Version:
		return fmt.Errorf("the provider's version is %q, it has 1 to %d printable bytes", CleanText(m.Version, ""), maxVersion)
	case !m.Has(CertificateAuthority):
		return fmt.Errorf("the provider %q has no ability %q, every provider has", m.Name, CertificateAuthority)
	case len(m.SettingsSchema) > maxSchema:
		return fmt.Errorf("the provider %q has a settings schema of %d bytes, %d are allowed", m.Name, len(m.SettingsSchema), maxSchema)
	case m.SettingsSchema != "" && !isJSONObject(m.SettingsSchema):
		return fmt.Errorf("invalid settings schema of provider %q: not a JSON object", m.Name)
	}
	return nil
}

func isJSONObject(s string) bool {
	return strings.HasPrefix(strings.TrimLeft(s, " \t\r\n"), "{") && json.Valid([]byte(s))
}

// ValidName reports whether s can be a provider's name: [a-z0-9][a-z0-9-]{0,62}.
func ValidName(s string) bool { return text.IsProviderName(s) }

func metadataToProto(m Metadata) *providerv1.GetMetadataResponse {
	out := &providerv1.GetMetadataResponse{
		Name: m.Name, Version: m.Version, SettingsSchema: m.SettingsSchema, FixedLifetime: m.Facts.FixedLifetime,
		NameMatch: providerv1.NameMatch(m.Facts.NameMatch) + 1, NeedsToken: m.Facts.NeedsToken, //nolint:gosec // one of three
	}
	for _, a := range m.Abilities {
		out.Abilities = append(out.Abilities, providerv1.Ability(a))
	}
	return out
}

// FactsFromProto converts the facts of a message. It takes a match of a later version as exact, so
// that nothing is accepted in error.
func FactsFromProto(in *providerv1.GetMetadataResponse) ca.Facts {
	facts := ca.Facts{FixedLifetime: in.GetFixedLifetime(), NeedsToken: in.GetNeedsToken()}
	switch in.GetNameMatch() {
	case providerv1.NameMatch_NAME_MATCH_TRUST_DOMAIN:
		facts.NameMatch = ca.MatchTrustDomain
	case providerv1.NameMatch_NAME_MATCH_ANY:
		facts.NameMatch = ca.MatchAny
	}
	return facts
}

// metadataFromProto ignores abilities that this host does not know.
func metadataFromProto(in *providerv1.GetMetadataResponse) (Metadata, error) {
	m := Metadata{Name: in.GetName(), Version: in.GetVersion(), SettingsSchema: in.GetSettingsSchema(), Facts: FactsFromProto(in)}
	if n := len(in.GetAbilities()); n > maxAbilities {
		return Metadata{}, fmt.Errorf("the provider lists %d abilities, %d are allowed", n, maxAbilities)
	}
	for _, a := range in.GetAbilities() {
		if _, known := abilityNames[Ability(a)]; known && !m.Has(Ability(a)) {
			m.Abilities = append(m.Abilities, Ability(a))
		}
	}
	if err := m.Check(); err != nil {
		return Metadata{}, err
	}
	return m, nil
}

// Diagnostic is one fault of the settings.
type Diagnostic struct {
	// Warning is logged; what is not a warning stops the start.
	Warning bool
	// Summary is one sentence: the setting, its value (not that of a secret one),
	// what is allowed.
	Summary string
	// Detail is what to do about it; it may be empty.
	Detail string
	// Pointer is where: a JSON Pointer (RFC 6901) into the settings; it may be empty.
	Pointer string
	// Err is the error behind it, which does not cross the wire; it may be nil.
	Err error
}

// HasErrors reports whether any of them is not a warning.
func HasErrors(found []Diagnostic) bool {
	return slices.ContainsFunc(found, func(d Diagnostic) bool { return !d.Warning })
}

func diagnosticsToProto(in []Diagnostic) *providerv1.ValidateResponse {
	out := new(providerv1.ValidateResponse)
	for _, d := range in[:min(len(in), maxDiagnostics)] {
		severity := providerv1.Diagnostic_SEVERITY_ERROR
		if d.Warning {
			severity = providerv1.Diagnostic_SEVERITY_WARNING
		}
		out.Diagnostics = append(out.Diagnostics, &providerv1.Diagnostic{
			Severity: severity, Summary: CleanText(d.Summary, ""), Detail: CleanText(d.Detail, ""), Pointer: CleanText(d.Pointer, ""),
		})
	}
	return out
}

// diagnosticsFromProto treats an unknown severity as an error, so that bad settings do not
// pass.
func diagnosticsFromProto(in *providerv1.ValidateResponse) []Diagnostic {
	list := in.GetDiagnostics()
	var out []Diagnostic
	for _, d := range list[:min(len(list), maxDiagnostics)] {
		out = append(out, Diagnostic{
			Warning: d.GetSeverity() == providerv1.Diagnostic_SEVERITY_WARNING,
			Summary: CleanText(d.GetSummary(), ""), Detail: CleanText(d.GetDetail(), ""), Pointer: CleanText(d.GetPointer(), ""),
		})
	}
	return out
}
