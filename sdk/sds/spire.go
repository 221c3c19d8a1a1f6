package sds

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// SPIRE has secrets served by the names that SPIRE's agent gives them, too: a key pair by its
// SPIFFE ID, a trust bundle by the ID of its trust domain, and all trust bundles by the name
// "ALL". A client that names nothing, or "*", gets what has a SPIFFE ID. A caller gets only
// those secrets that the source has for it.
type SPIRE struct {
	// Identities are the key pairs with their trust bundles. Where two have the same trust
	// domain, the bundle of the first is served. Required.
	Identities []SPIREIdentity
	// Federated maps foreign trust domains, as in "example.com", to the secret names of their
	// trust bundles. Default: none.
	Federated map[string]string
	// Validator selects the bundles that are for Envoy's SPIFFE certificate validator. Default:
	// [ValidatorAuto].
	Validator Validator
}

// SPIREIdentity is a key pair with a SPIFFE ID, and the bundle of its trust domain.
type SPIREIdentity struct {
	// Certificate and Roots are names of secrets. Certificate is required; without Roots, the
	// trust domain has no name here.
	Certificate, Roots string
	// TrustDomain is that of Certificate, as in "example.org": with it, its bundle does not wait
	// for the certificate. Default: known from the certificate.
	TrustDomain string
}

// Validator selects how Envoy verifies peers: by roots alone, or by its SPIFFE certificate
// validator, which takes from each CA only the names of that CA's trust domain.
//
// That validator does not check revocation, so a bundle with revocation lists is always plain.
// Several bundles cannot be plain together: any CA could then vouch for any trust domain. The
// name "ALL" is refused where they would have to be.
type Validator string

// The choices.
const (
	// ValidatorAuto uses the validator for trust domain IDs and "ALL"; other names are plain.
	ValidatorAuto Validator = "auto"
	// ValidatorAlways uses it for the Roots of identities by their own names as well, as SPIRE's
	// agent does.
	ValidatorAlways Validator = "always"
	// ValidatorNever has all bundles plain.
	ValidatorNever Validator = "never"
)

// allBundles is SPIRE's default for the name of all trust bundles together.
const allBundles = "ALL"

func (c SPIRE) check() error {
	if len(c.Identities) == 0 {
		return errors.New("sds: SPIRE.Identities is required")
	}
	for i, identity := range c.Identities {
		if identity.Certificate == "" {
			return fmt.Errorf("sds: SPIRE.Identities[%d] needs a Certificate, the name of a secret", i)
		}
	}
	for domain, name := range c.Federated {
		if err := pki.CheckTrustDomain(domain); err != nil {
			return fmt.Errorf("sds: SPIRE.Federated: %w", err)
		}
		if name == "" {
			return fmt.Errorf("sds: SPIRE.Federated[%q] is empty; name a trust bundle", domain)
		}
	}
	if !slices.Contains([]Validator{"", ValidatorAuto, ValidatorAlways, ValidatorNever}, c.Validator) {
		return fmt.Errorf("sds: SPIRE.Validator is %.256q; use auto, always or never", c.Validator)
	}
	return nil
}

// spire resolves SPIRE's names over the secrets by their own. A secret that has one of SPIRE's
// names as its own comes first.
type spire struct {
	*source
	cfg     SPIRE
	foreign []string // trust domains, sorted
	pairs   source   // the resources of key pairs by their SPIFFE IDs
	bundles bundles
	startup clock.Startup // in which "ALL" waits for foreign bundles
}

func newSPIRE(cfg SPIRE, plain *source) *spire {
	return &spire{
		source: plain, cfg: cfg, foreign: slices.Sorted(maps.Keys(cfg.Federated)),
		pairs: source{log: plain.log}, bundles: bundles{log: plain.log}, startup: clock.BeginStartup(),
	}
}

// Peek implements [xds.Source].
func (s *spire) Peek(caller secret.Caller, name string) (*xds.Resource, error) {
	if s.cfg.Validator == ValidatorAlways && s.isRoots(name) {
		return s.ownBundle(caller, name)
	}
	resource, err := s.source.Peek(caller, name)
	if !errors.Is(err, xds.ErrUnknown) {
		return resource, err
	}
	switch id, isID := strings.CutPrefix(name, "spiffe://"); {
	case name == allBundles:
		return s.all(caller)
	case isID && strings.Contains(id, "/"):
		return s.pair(caller, name)
	case isID:
		return s.bundle(caller, name, id)
	}
	return nil, err
}

// pair returns the key pair with this SPIFFE ID. While one is missing whose ID is not known yet,
// it is unknown whether there is one.
func (s *spire) pair(caller secret.Caller, id string) (*xds.Resource, error) {
	missing := xds.ErrUnknown
	for _, identity := range s.cfg.Identities {
		item, err := s.Source.Peek(caller, identity.Certificate)
		switch err = translated(err); {
		case errors.Is(err, xds.ErrUnknown):
		case errors.Is(err, xds.ErrNotReady):
			missing = xds.ErrNotReady
		case err != nil:
			return nil, err
		case spiffeID(item) == id:
			return s.pairs.resource(item, id)
		}
	}
	return nil, missing
}

// spiffeID returns that of a key pair, empty for none.
func spiffeID(item *secret.Item) string {
	if item.Kind != secret.KeyPair || item.Identity.SPIFFEID == nil {
		return ""
	}
	return item.Identity.SPIFFEID.String()
}

// List implements [xds.Lister]: what has a SPIFFE ID, and not the same again by its other names.
// While a certificate is missing, or has expired, its name is unknown.
func (s *spire) List(caller secret.Caller) ([]string, error) {
	domains, missing, err := s.domains(caller)
	if err != nil {
		return nil, err
	}
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, identity := range s.cfg.Identities {
		item, err := s.Source.Peek(caller, identity.Certificate)
		switch {
		case errors.Is(err, secret.ErrNotReady):
			missing = true
		case err == nil && spiffeID(item) != "":
			add(spiffeID(item))
		}
	}
	for _, d := range domains {
		if _, err := s.Source.Peek(caller, d.roots); !errors.Is(err, secret.ErrUnknown) {
			add("spiffe://" + d.name)
		}
	}
	if missing {
		return names, xds.ErrNotReady
	}
	return names, nil
}

// Watch implements [xds.Source].
func (s *spire) Watch(caller secret.Caller, name string, notify func(string)) (stop func(), err error) {
	id, isID := strings.CutPrefix(name, "spiffe://")
	var names []string
	switch {
	case name == allBundles:
		names = append(s.certificates(), s.allRoots()...)
	case isID && strings.Contains(id, "/"):
		names = s.certificates()
	case isID, s.cfg.Validator == ValidatorAlways && s.isRoots(name):
		names = append(s.certificates(), s.rootsOf(id)...)
	default: // a secret by its own name costs what it does without SPIRE's
		return s.source.Watch(caller, name, notify)
	}
	unwatch, err := s.watchAll(caller, append(names, name), func() { notify(name) })
	if rest := s.startup.Left(); err == nil && name == allBundles && rest > 0 {
		timer := time.AfterFunc(rest, func() { notify(name) })
		return func() { timer.Stop(); unwatch() }, nil
	}
	return unwatch, err
}

// WatchList implements [xds.Lister].
func (s *spire) WatchList(caller secret.Caller, notify func()) (stop func(), err error) {
	return s.watchAll(caller, append(s.certificates(), s.allRoots()...), notify)
}

// watchAll watches each name once. A name that the source will never know needs no watch.
func (s *spire) watchAll(caller secret.Caller, names []string, notify func()) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, one := range stops {
			one()
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		one, err := s.Source.Watch(caller, name, func(string) { notify() })
		switch {
		case err == nil:
			stops = append(stops, one)
		case !errors.Is(err, secret.ErrUnknown):
			stop()
			return nil, err
		}
	}
	return stop, nil
}

func (s *spire) certificates() (names []string) {
	for _, identity := range s.cfg.Identities {
		names = append(names, identity.Certificate)
	}
	return names
}

// rootsOf returns the names of the secrets that may be the bundle of a trust domain.
func (s *spire) rootsOf(domain string) (names []string) {
	for _, identity := range s.cfg.Identities {
		if identity.Roots != "" {
			names = append(names, identity.Roots)
		}
	}
	if roots := s.cfg.Federated[domain]; roots != "" {
		names = append(names, roots)
	}
	return names
}

func (s *spire) allRoots() []string {
	return append(s.rootsOf(""), slices.Collect(maps.Values(s.cfg.Federated))...)
}
