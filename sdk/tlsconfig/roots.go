package tlsconfig

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// maxVerified bounds the verified peers cached for one version of the roots; above it, the
// cache is cleared.
const maxVerified = 1000

// roots are one version of the trust bundle, with a cache of the peers it verified: a peer
// that returns or resumes a session costs no signature check. A new version starts with an
// empty cache.
type roots struct {
	bundle  *pki.Bundle
	pool    *x509.CertPool
	revoked *pki.Revocations // nil if revocation is not checked

	mu       sync.Mutex
	verified map[[sha256.Size]byte]path // by SHA-256 of the leaf's DER
}

// path is a verified chain and its validity.
type path struct {
	chain       []*x509.Certificate // leaf first, root last
	from, until time.Time
}

// bundle is the trust bundle that peers are verified with.
type bundle = cached[roots]

func newBundle(o Options, name string) *bundle {
	return &bundle{source: o.Source, caller: o.Caller, name: name, kind: secret.TrustBundle, parse: parseRoots}
}

func parseRoots(item *secret.Item) (*roots, error) {
	if len(item.Roots) == 0 {
		return nil, emptyBundle(item)
	}
	certs, err := pki.ParseCertificates(item.Roots)
	if err != nil {
		return nil, malformed(item.Name, secret.TrustBundle, err)
	}
	revoked, err := pki.NewRevocations(item.CRLs, item.LeafCRLOnly)
	if err != nil {
		return nil, malformed(item.Name, secret.TrustBundle, err)
	}
	b := pki.NewBundle(certs...)
	return &roots{bundle: b, pool: b.Pool(), revoked: revoked, verified: make(map[[sha256.Size]byte]path)}, nil
}

// verify returns the chain from the first certificate to one of the roots, on which nothing is
// revoked.
func (r *roots) verify(certs []*x509.Certificate, usage x509.ExtKeyUsage) ([]*x509.Certificate, error) {
	now := time.Now()
	key := sha256.Sum256(certs[0].Raw)
	if p, ok := r.known(key); ok && !now.Before(p.from) && !now.After(p.until) {
		return p.chain, nil
	}
	between := x509.NewCertPool()
	for _, cert := range certs[1:] {
		between.AddCert(cert)
	}
	chains, err := certs[0].Verify(x509.VerifyOptions{
		Roots: r.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return nil, pki.Explain(err, certs[0], certs[1:]...)
	}
	p, err := r.unrevoked(chains, now)
	if err != nil {
		return nil, err
	}
	r.remember(key, p)
	return p.chain, nil
}

// unrevoked returns the first path on which nothing is revoked.
func (r *roots) unrevoked(chains [][]*x509.Certificate, now time.Time) (p path, err error) {
	for _, chain := range chains {
		p = pathOf(chain)
		until, fault := r.revoked.Check(chain, now)
		if fault == nil && !until.IsZero() && until.Before(p.until) {
			p.until = until
		}
		if fault == nil {
			return p, nil
		}
		err = cmp.Or(err, fault)
	}
	return path{}, err
}

func pathOf(chain []*x509.Certificate) path {
	p := path{chain, chain[0].NotBefore, chain[0].NotAfter}
	for _, cert := range chain[1:] {
		if cert.NotBefore.After(p.from) {
			p.from = cert.NotBefore
		}
		if cert.NotAfter.Before(p.until) {
			p.until = cert.NotAfter
		}
	}
	return p
}

func (r *roots) known(key [sha256.Size]byte) (path, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.verified[key]
	return p, ok
}

func (r *roots) remember(key [sha256.Size]byte, p path) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.verified) == maxVerified {
		clear(r.verified)
	}
	r.verified[key] = p
}
