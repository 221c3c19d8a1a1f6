package sds

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// domain is a trust domain, and the name of the secret with its bundle.
type domain struct {
	name, roots string
	foreign     bool
}

// domains returns the caller's own trust domains, then the foreign ones. missing means that there
// may be more: of a certificate that is not there yet.
func (s *spire) domains(caller secret.Caller) (all []domain, missing bool, err error) {
	add := func(d domain) {
		if !slices.ContainsFunc(all, func(other domain) bool { return other.name == d.name }) {
			all = append(all, d)
		}
	}
	for _, identity := range s.cfg.Identities {
		name, err := s.domainOf(caller, identity)
		switch {
		case err != nil:
			return nil, false, err
		case name == unclear:
			missing = true
		case name != "" && identity.Roots != "":
			add(domain{name: name, roots: identity.Roots})
		}
	}
	for _, name := range s.foreign {
		add(domain{name: name, roots: s.cfg.Federated[name], foreign: true})
	}
	return all, missing, nil
}

// unclear stands for the trust domain of a certificate that is not there yet.
const unclear = "?"

// domainOf returns the trust domain of an identity, empty where the caller has none of it.
func (s *spire) domainOf(caller secret.Caller, identity SPIREIdentity) (string, error) {
	item, err := s.Source.Peek(caller, identity.Certificate)
	switch err = translated(err); {
	case err == nil && spiffeID(item) != "":
		return item.Identity.SPIFFEID.Host, nil
	case errors.Is(err, xds.ErrNotReady):
		return cmp.Or(identity.TrustDomain, unclear), nil
	case errors.Is(err, xds.ErrUnknown):
		return "", nil
	}
	return "", err
}

// bundle returns the bundle of one trust domain.
func (s *spire) bundle(caller secret.Caller, name, wanted string) (*xds.Resource, error) {
	domains, missing, err := s.domains(caller)
	if err != nil {
		return nil, err
	}
	for _, d := range domains {
		if d.name != wanted {
			continue
		}
		item, err := s.roots(caller, d)
		if err != nil {
			return nil, err
		}
		return s.bundles.resource(name, s.cfg.Validator, []trusted{{d, item}})
	}
	if missing {
		return nil, xds.ErrNotReady
	}
	return nil, xds.ErrUnknown
}

// roots returns the bundle of a trust domain.
func (s *spire) roots(caller secret.Caller, d domain) (*secret.Item, error) {
	item, err := s.Source.Peek(caller, d.roots)
	switch {
	case err != nil:
		return nil, translated(err)
	case item.Kind != secret.TrustBundle:
		return nil, xds.ErrUnknown
	}
	return item, nil
}

// isRoots reports whether name is that of the bundle of an identity.
func (s *spire) isRoots(name string) bool {
	return slices.ContainsFunc(s.cfg.Identities, func(i SPIREIdentity) bool { return i.Roots == name && name != "" })
}

// ownBundle returns the bundle of an identity by its own name. It is plain where no identity that
// has it has a trust domain.
func (s *spire) ownBundle(caller secret.Caller, name string) (*xds.Resource, error) {
	domains, missing, err := s.domains(caller)
	if err != nil {
		return nil, err
	}
	var all []trusted
	for _, d := range domains {
		if d.roots != name || d.foreign {
			continue
		}
		item, err := s.roots(caller, d)
		if err != nil {
			return nil, err
		}
		all = append(all, trusted{d, item})
	}
	switch {
	case len(all) > 0:
		return s.bundles.resource(name, s.cfg.Validator, all)
	case missing:
		return nil, xds.ErrNotReady
	}
	return s.source.Peek(caller, name)
}

// all returns the bundles of all trust domains: every one of the caller's own, and the foreign
// ones that are there.
func (s *spire) all(caller secret.Caller) (*xds.Resource, error) {
	domains, missing, err := s.domains(caller)
	switch {
	case err != nil:
		return nil, err
	case missing:
		return nil, xds.ErrNotReady
	}
	var all []trusted
	for _, d := range domains {
		item, err := s.roots(caller, d)
		switch {
		case err == nil:
			all = append(all, trusted{d, item})
		case errors.Is(err, xds.ErrUnknown), errors.Is(err, xds.ErrNotReady) && d.foreign && s.startup.Left() == 0:
		default:
			return nil, err
		}
	}
	if !slices.ContainsFunc(all, func(t trusted) bool { return !t.foreign }) {
		return nil, xds.ErrUnknown // a caller without an identity
	}
	return s.bundles.resource(allBundles, s.cfg.Validator, all)
}

// trusted is a trust domain with its bundle.
type trusted struct {
	domain
	item *secret.Item
}

// bundles are the trust bundles by SPIRE's names. Each version is marshalled once and shared.
type bundles struct {
	log *slog.Logger

	mu    sync.Mutex
	made  map[string]madeBundle          // by name, trust domains and secrets
	names map[string]map[string]struct{} // by the name of a secret: its other names
}

// madeBundle is a resource, nil if it cannot be served.
type madeBundle struct {
	version  string
	resource *xds.Resource
}

// resource returns the bundles of these trust domains as one resource.
func (b *bundles) resource(name string, v Validator, all []trusted) (*xds.Resource, error) {
	keys, content := []string{name}, []string{string(cmp.Or(v, ValidatorAuto))}
	for _, t := range all {
		keys = append(keys, t.name, t.roots) // known needs the name of every secret
		content = append(content, t.name, t.item.Version)
	}
	key, now := strings.Join(keys, " "), version.Of([]byte(strings.Join(content, " ")))
	if made, ok := b.find(key); ok && made.version == now {
		return offered(made.resource)
	}
	resource, err := bundleResource(name, now, v, all)
	if errors.Is(err, errTogether) {
		b.log.Error("trust bundles not served over SDS", "secret", name, "error", err)
	} else if err != nil {
		return nil, err
	}
	return offered(b.keep(name, key, madeBundle{now, resource}, all))
}

// offered returns the resource, or the unknown-name error if it is nil because it cannot be
// served.
func offered(resource *xds.Resource) (*xds.Resource, error) {
	if resource == nil {
		return nil, xds.ErrUnknown
	}
	return resource, nil
}

func (b *bundles) find(key string) (made madeBundle, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	made, ok = b.made[key]
	return made, ok
}

// keep remembers a resource, and returns the one that another stream made first. There are no
// more than there are trust domains of certificates.
func (b *bundles) keep(name, key string, made madeBundle, all []trusted) *xds.Resource {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made[key].version == made.version {
		return b.made[key].resource
	}
	if b.made == nil {
		b.made, b.names = make(map[string]madeBundle), make(map[string]map[string]struct{})
	}
	b.made[key] = made
	for _, t := range all {
		if b.names[t.roots] == nil {
			b.names[t.roots] = make(map[string]struct{})
		}
		b.names[t.roots][name] = struct{}{}
	}
	return made.resource
}

// known returns names with what else these secrets were served as.
func (b *bundles) known(names []string) []string {
	all := slices.Clone(names)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range names {
		for other := range b.names[name] {
			all = append(all, other)
		}
	}
	return all
}

// errTogether is why several bundles are refused; see [Validator].
var errTogether = errors.New("bundles of several trust domains need Envoy's SPIFFE validator, which is switched off or would ignore their revocation lists; ask for one trust domain")

func bundleResource(name, version string, v Validator, all []trusted) (*xds.Resource, error) {
	context, err := spiffeValidation(v, all)
	if err != nil {
		return nil, err
	}
	body, err := anypb.New(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: context}})
	if err != nil {
		return nil, err
	}
	out := &xds.Resource{Name: name, Version: version, Body: body}
	for _, t := range all {
		out.Provides = append(out.Provides, t.item.RootFingerprints...)
	}
	return out, nil
}

func spiffeValidation(v Validator, all []trusted) (*tlsv3.CertificateValidationContext, error) {
	checked := slices.ContainsFunc(all, func(t trusted) bool { return len(t.item.CRLs) > 0 })
	switch plain := v == ValidatorNever || checked; {
	case plain && !oneSecret(all):
		return nil, errTogether
	case plain:
		return validation(all[0].item), nil
	}
	config := &tlsv3.SPIFFECertValidatorConfig{}
	for _, t := range all {
		config.TrustDomains = append(config.TrustDomains, &tlsv3.SPIFFECertValidatorConfig_TrustDomain{Name: t.name, TrustBundle: inline(t.item.Roots)})
	}
	packed, err := anypb.New(config)
	if err != nil {
		return nil, err
	}
	return &tlsv3.CertificateValidationContext{
		CustomValidatorConfig: &corev3.TypedExtensionConfig{Name: "envoy.tls.cert_validator.spiffe", TypedConfig: packed},
	}, nil
}

// oneSecret reports whether all have the same bundle.
func oneSecret(all []trusted) bool {
	return !slices.ContainsFunc(all, func(t trusted) bool { return t.roots != all[0].roots })
}
