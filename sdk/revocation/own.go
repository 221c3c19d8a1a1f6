package revocation

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// revoked is a key pair in the source whose certificate a list names.
type revoked struct {
	name, fingerprint string
	why               string
}

// revokedOf returns the key pairs that lists revoke. A list that has ended counts: nothing is taken
// off it before the certificate has ended, too (RFC 5280, section 3.3).
func revokedOf(names []string, pairs []*secret.Item, lists []signed) (all []revoked) {
	for i, pair := range pairs {
		if pair == nil {
			continue
		}
		certs, err := pki.ParseCertificates(pair.Chain)
		if err != nil || len(certs) == 0 {
			continue // unreachable for a key pair: it was parsed before
		}
		for _, s := range lists {
			if s.revokes(certs[0]) {
				why := fmt.Sprintf("revocation list %v of %s has its certificate, serial %s", s.list.Number, nameOf(s.ca), certs[0].SerialNumber.Text(16))
				all = append(all, revoked{names[i], pki.Fingerprint(certs[0]), text.Clean(why)})
				break
			}
		}
	}
	return all
}

// revokes reports whether the list has a certificate of its CA.
func (s signed) revokes(cert *x509.Certificate) bool {
	return bytes.Equal(cert.RawIssuer, s.ca.RawSubject) &&
		slices.ContainsFunc(s.list.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool {
			return e.SerialNumber.Cmp(cert.SerialNumber) == 0
		}) && cert.CheckSignatureFrom(s.ca) == nil
}

// apart is the least time between two renewals of a key pair: a CA may give all certificates one serial
// number, or revoke them at once.
const apart = time.Minute

// renewal is that of one revoked certificate.
type renewal struct {
	fingerprint string
	begun       bool      // by the owner, which tries again by itself
	last        time.Time // monotonic: when that of this certificate, or of the one before, began
	fault       string    // why not, as it was logged
}

// renewRevoked has each revoked key pair replaced, once for each certificate. After an error, such as that
// of an owner that waits after another failure, the next look tries again. Only the Set's goroutine calls
// renewRevoked, and it holds no lock.
func (b *bundle) renewRevoked() {
	renewing := make(map[string]renewal, len(b.made.revoked))
	for _, r := range b.made.revoked {
		known := b.renewing[r.name]
		if known.fingerprint != r.fingerprint {
			known = renewal{fingerprint: r.fingerprint, last: known.last}
			b.reportRevoked(r)
		}
		if !known.begun && (known.last.IsZero() || time.Since(known.last) >= apart) {
			known = b.ask(r.name, known)
		}
		renewing[r.name] = known
	}
	b.renewing = renewing
}

func (b *bundle) reportRevoked(r revoked) {
	b.log.Warn("a held certificate is revoked, and is renewed", "pair", r.name, "fingerprint", r.fingerprint, "why", r.why)
	b.observe(secret.Event{Kind: secret.Failed, Secret: r.name, Authority: publisher, Reason: revokedReason,
		Failure: &secret.Failure{Reason: revokedReason, Text: r.why, At: b.made.at}})
}

// ask has the owner of a key pair renew it, and logs a new reason why it does not.
func (b *bundle) ask(name string, r renewal) renewal {
	err := b.renew(name)
	if err == nil {
		r.begun, r.last = true, time.Now()
		return r
	}
	if fault := text.Clean(err.Error()); fault != r.fault {
		r.fault = fault
		b.log.Warn("a revoked certificate is not renewed now", "pair", name, "error", fault)
	}
	return r
}
