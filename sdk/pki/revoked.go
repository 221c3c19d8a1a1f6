package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
)

// The errors of [Revocations.Check].
var (
	// ErrRevoked means that a list names the certificate.
	ErrRevoked = errors.New("the certificate is revoked")
	// ErrNoCRL means that its CA has no list that is valid now, so it is unknown.
	ErrNoCRL = errors.New("the certificate's CA has no current revocation list")
)

// Revocations checks chains against revocation lists, as Envoy and OpenSSL do. It is
// immutable and safe for concurrent use; a nil *Revocations revokes nothing.
type Revocations struct {
	lists    []revocations
	leafOnly bool
	signed   sync.Map // [sha256.Size]byte of a CA's DER to *revocations, nil if it has none
}

// revocations is a list that can be searched.
type revocations struct {
	list    *x509.RevocationList
	revoked map[string]bool // by the serial number's bytes
}

// NewRevocations returns the check against lists that a trusted source made of several inputs, as
// [EncodeCRLs] writes them; nil without any. leafOnly checks the leaf alone, and no CA above it.
func NewRevocations(pemBytes []byte, leafOnly bool) (*Revocations, error) {
	if len(pemBytes) == 0 {
		return nil, nil
	}
	r := &Revocations{leafOnly: leafOnly}
	n := 0
	for block, err := range Blocks(pemBytes) {
		if n++; err != nil {
			return nil, err
		}
		if err := wantType(block, n, crlBlock); err != nil {
			return nil, err
		}
		list, err := parseCRL(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("a revocation list %w", err)
		}
		revoked := make(map[string]bool, len(list.RevokedCertificateEntries))
		for _, entry := range list.RevokedCertificateEntries {
			revoked[string(entry.SerialNumber.Bytes())] = true
		}
		r.lists = append(r.lists, revocations{list, revoked})
	}
	if n == 0 {
		return nil, fmt.Errorf("it holds no PEM block %q", crlBlock)
	}
	return r, nil
}

// Check checks a verified chain, leaf first and root last: each certificate but the root must not be
// on its CA's list, and that list must be valid at now. until is when the answer may change by
// itself. The error wraps [ErrRevoked] or [ErrNoCRL].
func (r *Revocations) Check(chain []*x509.Certificate, now time.Time) (until time.Time, err error) {
	if r == nil {
		return until, nil
	}
	for i := range len(chain) - 1 {
		cert, issuer := chain[i], chain[i+1]
		found := r.of(issuer)
		switch {
		case found == nil:
			return until, fmt.Errorf("%w: %s has none", ErrNoCRL, nameOf(issuer))
		case !CRLCurrent(found.list, now):
			return until, fmt.Errorf("%w: that of %s ended at %s", ErrNoCRL, nameOf(issuer), clock.Stamp(found.list.NextUpdate))
		case found.revoked[string(cert.SerialNumber.Bytes())]:
			return until, fmt.Errorf("%w: serial %s, by %s", ErrRevoked, cert.SerialNumber.Text(16), nameOf(issuer))
		}
		if until.IsZero() || found.list.NextUpdate.Before(until) {
			until = found.list.NextUpdate
		}
		if r.leafOnly {
			break
		}
	}
	return until, nil
}

// of returns the list that a CA of a verified chain signed, or nil.
func (r *Revocations) of(issuer *x509.Certificate) *revocations {
	key := sha256.Sum256(issuer.Raw)
	if known, ok := r.signed.Load(key); ok {
		return known.(*revocations)
	}
	var found *revocations
	for i := range r.lists {
		if SignedCRL(r.lists[i].list, issuer) && (found == nil || LaterCRL(r.lists[i].list, found.list)) {
			found = &r.lists[i]
		}
	}
	r.signed.Store(key, found)
	return found
}

func nameOf(cert *x509.Certificate) string { return text.Quote(cert.Subject.String()) }
