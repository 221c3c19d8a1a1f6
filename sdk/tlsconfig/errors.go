package tlsconfig

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// The reasons for a failed handshake: the Reason of an [*Error] ([errors.Is]).
var (
	// ErrNotHeld means that the source does not have the secret. The error also wraps the
	// source's own, such as [secret.ErrClosed].
	ErrNotHeld = errors.New("a secret that TLS needs is not held")
	// ErrRootsGone means that the source had roots and no longer has any. The old roots
	// are not used. The error also wraps the source's own.
	ErrRootsGone = errors.New("the roots that peers were verified with are gone")
	// ErrEmptyBundle means that the trust bundle has no roots.
	ErrEmptyBundle = errors.New("the trust bundle is empty")
	// ErrMalformed means that the source returned something other than a secret of this kind.
	ErrMalformed = errors.New("a secret cannot be used for TLS")
	// ErrUntrusted means that the peer's chain does not lead to the roots.
	ErrUntrusted = errors.New("the peer's certificate is not trusted")
	// ErrRevoked means that a CA has revoked a certificate of the peer's chain, or has no
	// current revocation list while the bundle has some. The error also wraps
	// [pki.ErrRevoked] or [pki.ErrNoCRL].
	ErrRevoked = errors.New("the peer's certificate is revoked")
	// ErrNoID means that the peer's certificate has no SPIFFE ID, or more than one.
	ErrNoID = errors.New("the peer's certificate has no SPIFFE ID")
	// ErrTrustDomain means that the peer is in another trust domain.
	ErrTrustDomain = errors.New("the peer is of another trust domain")
	// ErrOtherName means that the peer has a different name.
	ErrOtherName = errors.New("the peer has another name")
	// ErrRefused means that the authorizer returned an error, which this one wraps.
	ErrRefused = errors.New("the peer is refused")
)

// Error is why a handshake failed, on the side that ended it. The other side sees only
// an alert.
type Error struct {
	// Reason is one of the errors of this package.
	Reason error
	// Expected is the required value and Seen the actual one: short texts in which foreign
	// parts are bounded and escaped.
	Expected, Seen string
	// Err is the cause; it may be nil.
	Err error
}

// Error returns the failure in one sentence.
func (e *Error) Error() string {
	sentence := fmt.Sprintf("%v: expected %s, seen %s", e.Reason, e.Expected, e.Seen)
	if e.Err != nil {
		sentence += fmt.Sprintf(" (%s)", text.Clean(e.Err.Error()))
	}
	return sentence
}

// Unwrap returns the reason and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Err}
}

func (e *Error) expecting(what string) *Error {
	e.Expected = what
	return e
}

// missing returns the error for a secret that the source does not have; before is the last
// item it had.
func missing(name string, kind secret.Kind, err error, before *secret.Item) *Error {
	e := &Error{Reason: ErrNotHeld, Expected: fmt.Sprintf("the %s %.256q", kind, name), Seen: "none", Err: err}
	if kind == secret.TrustBundle && before != nil && !errors.Is(err, secret.ErrClosed) {
		e.Reason = ErrRootsGone
		e.Seen = "none any more, version " + before.Version + " before"
	}
	return e
}

func emptyBundle(item *secret.Item) *Error {
	return &Error{
		Reason: ErrEmptyBundle, Expected: fmt.Sprintf("one root at least in the %s %.256q", secret.TrustBundle, item.Name),
		Seen: "none in version " + item.Version,
	}
}

// malformed returns the error for an invalid item; err quotes no key.
func malformed(name string, kind secret.Kind, err error) *Error {
	return &Error{Reason: ErrMalformed, Expected: fmt.Sprintf("the %s %.256q", kind, name), Seen: "something else", Err: err}
}

func (v *Verifier) untrusted(bundle string, held *roots, leaf *x509.Certificate, err error) *Error {
	return &Error{
		Reason:   ErrUntrusted,
		Expected: fmt.Sprintf("a %s's certificate under one of the %d roots in %.256q", v.as.peer, held.bundle.Len(), bundle),
		Seen:     describe(leaf), Err: err,
	}
}

// describe returns the names of a certificate, or its subject, for an error.
func describe(cert *x509.Certificate) string {
	var names []string
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	names = append(names, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return fmt.Sprintf("the subject %.256q", cert.Subject.String())
	}
	return fmt.Sprintf("%.256q", strings.Join(names, ", "))
}
