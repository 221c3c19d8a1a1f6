package chain

import (
	"bytes"
	"crypto/x509"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
)

const (
	// maxChecks bounds the signatures that are checked for a bag.
	maxChecks = 256
	// maxLength bounds a way from a leaf to a root.
	maxLength = 10
)

var errTooMany = ca.Errorf(ca.Internal, "the authority's certificates have too many ways to a root")

// graph links the certificates of one bag to their signers.
type graph struct {
	certs  []*x509.Certificate // those that end last come first
	checks int                 // signatures checked so far
	known  map[[2]*x509.Certificate]bool
}

func (g *graph) spent() bool { return g.checks > maxChecks }

// signed reports whether issuer signed cert. When too many signatures were checked, it is
// false.
func (g *graph) signed(cert, issuer *x509.Certificate) bool {
	if !bytes.Equal(cert.RawIssuer, issuer.RawSubject) || !issuer.IsCA {
		return false
	}
	pair := [2]*x509.Certificate{cert, issuer}
	if result, ok := g.known[pair]; ok {
		return result
	}
	if g.checks++; g.spent() {
		return false
	}
	if g.known == nil {
		g.known = map[[2]*x509.Certificate]bool{}
	}
	g.known[pair] = cert.CheckSignatureFrom(issuer) == nil
	return g.known[pair]
}

// climb returns the way from a leaf up, without the root, and all roots that it leads to. It
// goes breadth first, so that the first root ends the shortest way.
func (g *graph) climb(leaf *x509.Certificate) (way, roots []*x509.Certificate, err error) {
	longest := []*x509.Certificate{leaf}
	seen := map[*x509.Certificate]bool{leaf: true}
	for ways := [][]*x509.Certificate{longest}; len(ways) > 0; ways = ways[1:] {
		at := ways[0]
		if len(at) > len(longest) {
			longest = at
		}
		for _, issuer := range g.issuers(at[len(at)-1]) {
			switch {
			case seen[issuer]:
				continue
			case isRoot(issuer):
				roots = append(roots, issuer)
				if way == nil {
					way = at
				}
			case len(at) < maxLength:
				ways = append(ways, append(slices.Clip(at), issuer))
			}
			seen[issuer] = true
		}
	}
	if g.spent() {
		return nil, nil, errTooMany
	}
	if way == nil {
		way = longest
	}
	return way, roots, nil
}

// issuers returns the certificates that signed cert, other than itself.
func (g *graph) issuers(cert *x509.Certificate) (all []*x509.Certificate) {
	for _, other := range g.certs {
		if other != cert && g.signed(cert, other) {
			all = append(all, other)
		}
	}
	return all
}
