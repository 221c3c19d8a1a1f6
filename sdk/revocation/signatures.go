package revocation

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"fmt"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxPairs bounds the signatures that are verified for one bundle in one judgement. Ordinary
// bundles have a pair of a list and a CA of its name for each CA; with many roots and lists of
// one name, all combinations would be tried. Pairs that were verified before do not count:
// many new lists must not displace those that are held.
const maxPairs = 1000

// signatures remembers which CA signed which list, so that each pair is verified once,
// however often the lists are judged. The Set's goroutine owns it.
type signatures struct {
	verify   func(*x509.RevocationList, *x509.Certificate) bool
	last     map[pair]bool // of the judgement before
	now      map[pair]bool
	verified int  // in this judgement
	over     bool // there are more than maxPairs
}

// pair is a list and the SHA-256 of a CA's certificate.
type pair struct {
	list *x509.RevocationList
	ca   [sha256.Size]byte
}

// begin starts a judgement. What it does not ask for is forgotten.
func (s *signatures) begin() {
	if s.verify == nil {
		s.verify = pki.SignedCRL
	}
	s.last, s.now, s.verified, s.over = s.now, make(map[pair]bool), 0, false
}

// signed reports whether ca signed the list.
func (s *signatures) signed(list *x509.RevocationList, ca *x509.Certificate) bool {
	if !bytes.Equal(list.RawIssuer, ca.RawSubject) {
		return false
	}
	p := pair{list, sha256.Sum256(ca.Raw)}
	if is, known := s.now[p]; known {
		return is
	}
	is, known := s.last[p]
	switch {
	case known:
	case s.verified == maxPairs:
		s.over = true
		return false
	default:
		s.verified++
		is = s.verify(list, ca)
	}
	s.now[p] = is
	return is
}

// fault describes the pairs that were not verified; empty if all were.
func (s *signatures) fault() string {
	if !s.over {
		return ""
	}
	return fmt.Sprintf("too many revocation lists and CAs of the same name: only %d signatures were verified; remove lists and roots that are no longer needed", maxPairs)
}
