package certprovider

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials/tls/certprovider"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/tlsconfig"
)

// federation is a source that has the trust bundle of each trust domain as "spiffe://<domain>"; nil
// if it has no trust domains.
type federation interface{ Federated() []string }

// provider returns the key material of one pair and one bundle.
type provider struct {
	source  func(context.Context) (secret.Source, error)
	release func()
	pair    string // "" if it is not wanted
	roots   string // "" if they are not wanted

	last atomic.Pointer[material]
}

// material is what the secrets make.
type material struct {
	of held
	certprovider.KeyMaterial
}

func build(c config, o certprovider.BuildOptions) certprovider.Provider {
	p := &provider{}
	p.source, p.release = sources.acquire(c)
	if o.WantIdentity {
		p.pair = cmp.Or(o.CertName, defaultPair)
	}
	if o.WantRoot {
		p.roots = rootsName(o)
	}
	return p
}

// rootsName returns the bundle's name. A certificate_name that is asked for identity and roots at
// once is that of the pair.
func rootsName(o certprovider.BuildOptions) string {
	if o.WantIdentity {
		return defaultRoots
	}
	return cmp.Or(o.CertName, defaultRoots)
}

// Close implements [certprovider.Provider].
func (p *provider) Close() { p.release() }

// KeyMaterial implements [certprovider.Provider]. It waits until the source has the secrets.
func (p *provider) KeyMaterial(ctx context.Context) (*certprovider.KeyMaterial, error) {
	now, err := p.held(ctx)
	if err != nil {
		return nil, fmt.Errorf("certificate provider %s: %w", Name, err)
	}
	if last := p.last.Load(); last != nil && last.of.same(now) {
		return &last.KeyMaterial, nil
	}
	made, err := now.material()
	if err != nil {
		return nil, fmt.Errorf("certificate provider %s: %w", Name, err)
	}
	next := &material{now, *made}
	p.last.Store(next)
	return &next.KeyMaterial, nil
}

// held are the current secrets.
type held struct {
	pair, roots *secret.Item            // nil if not wanted
	domains     map[string]*secret.Item // nil if the source has no trust domains
}

func (p *provider) held(ctx context.Context) (h held, err error) {
	source, err := p.source(ctx)
	if err != nil {
		return held{}, err
	}
	if p.pair != "" {
		if h.pair, err = secret.Get(ctx, source, secret.Caller{}, p.pair); err != nil {
			return held{}, err
		}
	}
	if p.roots == "" {
		return h, nil
	}
	if h.roots, err = secret.Get(ctx, source, secret.Caller{}, p.roots); err != nil {
		return held{}, err
	}
	h.domains = p.domains(source, h.roots)
	return h, nil
}

// domains returns the trust bundles by trust domain, nil if the source has none. Roots that are those of a
// trust domain verify no peer of another.
func (p *provider) domains(source secret.Source, roots *secret.Item) map[string]*secret.Item {
	from, ok := source.(federation)
	if !ok {
		return nil
	}
	names := from.Federated()
	if names == nil {
		return nil
	}
	if domain, ok := strings.CutPrefix(p.roots, "spiffe://"); ok {
		return map[string]*secret.Item{domain: roots}
	}
	if p.roots != defaultRoots {
		return nil
	}
	all := map[string]*secret.Item{}
	for _, domain := range names {
		// A bundle that cannot be had leaves its trust domain without roots.
		if item, err := source.Peek(secret.Caller{}, "spiffe://"+domain); err == nil {
			all[domain] = item
		}
	}
	return all
}

// same reports whether both have the same content.
func (h held) same(other held) bool {
	return same(h.pair, other.pair) && same(h.roots, other.roots) &&
		(h.domains == nil) == (other.domains == nil) && maps.EqualFunc(h.domains, other.domains, same)
}

func same(a, b *secret.Item) bool {
	return a == b || a != nil && b != nil && a.Version == b.Version && a.Version != ""
}

func (h held) material() (m *certprovider.KeyMaterial, err error) {
	m = &certprovider.KeyMaterial{}
	if h.pair != nil {
		cert, err := tlsconfig.Certificate(h.pair)
		if err != nil {
			return nil, err
		}
		m.Certs = []tls.Certificate{*cert}
	}
	if h.roots != nil {
		roots, err := anchors(h.roots)
		if err != nil {
			return nil, err
		}
		m.Roots = pki.NewBundle(roots...).Pool()
	}
	if h.domains != nil { // an empty map trusts no peer, and none at all trusts each that Roots sign
		m.SPIFFEBundleMap, err = h.bundles()
	}
	return m, err
}

func (h held) bundles() (map[string]*spiffebundle.Bundle, error) {
	all := map[string]*spiffebundle.Bundle{}
	for domain, item := range h.domains {
		id, err := spiffeid.TrustDomainFromString(domain)
		if err != nil {
			return nil, err
		}
		roots, err := anchors(item)
		if err != nil {
			return nil, err
		}
		all[domain] = spiffebundle.FromX509Authorities(id, roots)
	}
	return all, nil
}

// anchors returns the trust anchors of a bundle, which need not be self-signed.
func anchors(bundle *secret.Item) ([]*x509.Certificate, error) {
	certs, err := pki.ParseCertificates(bundle.Roots)
	if err != nil {
		return nil, fmt.Errorf("invalid trust bundle %.256q: %w", bundle.Name, err)
	}
	return certs, nil
}
