package pki

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/clock"
	"github.com/countersign-dev/countersign/internal/text"
)

const (
	// MaxClockSkew is the tolerated clock error of a CA. A leaf may start up to this much
	// after now and end up to this much after the requested time.
	MaxClockSkew = 5 * time.Minute

	maxChain = 10 // certificates on the path
	maxReply = 64 // in a reply
)

// NameCheck selects the names that a CA may put into a leaf.
type NameCheck int

// The rules, strictest first.
const (
	ExactNames      NameCheck = iota // the requested names, no more and no fewer
	TrustDomainName                  // a SPIFFE ID in the same trust domain
	AnyName                          // any names
)

// Check holds what a CA's reply must satisfy before anything of it is used.
type Check struct {
	// Key is the public key in the CSR.
	Key crypto.PublicKey
	// Identity is the requested identity; Names is how closely the leaf must match it.
	Identity Identity
	Names    NameCheck
	// RequestID is the request's ID, which the CA may make the common name.
	RequestID string
	// Roots are the roots that the chain may lead to; an empty set fails the check.
	Roots *Bundle
	// Now is the time of the check.
	Now time.Time
	// AskedUntil is the requested NotAfter; zero if no lifetime was requested.
	// AcceptLonger lets the leaf outlive it.
	AskedUntil   time.Time
	AcceptLonger bool
}

// Chain is a verified reply. It must not be modified.
type Chain struct {
	Leaf         *x509.Certificate
	Certificates []*x509.Certificate // the verified path: the leaf, then each certificate's issuer
	Root         *x509.Certificate   // the root the chain leads to
	Identity     Identity            // the leaf's names
	// Ends is when the first certificate on the path ends, as peers refuse the chain from
	// then on; EndsAbove leaves the leaf out.
	Ends, EndsAbove time.Time
	PEM             []byte // Certificates, encoded
	// LeftOut describes what the reply holds beside Certificates and Root.
	LeftOut []string

	sent     []*x509.Certificate
	unusable []error
}

// CheckError is the check that a CA's reply failed.
type CheckError struct {
	// Check is one word from a fixed list, fit for a metric label: format, key, usage, ca,
	// names, roots, not-before, not-after, expired or chain; package secret adds
	// anchor, package ra backdating, lifetime and too-long.
	Check  string
	Detail string
}

// Error returns the check and the details.
func (e *CheckError) Error() string {
	return fmt.Sprintf("the CA's reply fails the check %q: %s", e.Check, e.Detail)
}

func failed(check, format string, args ...any) error {
	return &CheckError{check, fmt.Sprintf(format, args...)}
}

// NotPinned returns the [*CheckError] for roots of which an operator pinned none. It names the first
// by its SHA-256.
func NotPinned(roots *Bundle) error {
	first := roots.Certificates()[0]
	return failed("roots", "none of them is among the pinned roots; the CA has %s, SHA-256 %s: if that is your CA's root, add it to pinned_roots", text.Clean(first.Subject.String()), Fingerprint(first))
}

// Chain verifies a chain (PEM) of at most 64 certificates. The leaf is the first one with the
// key of the request. Chain returns the path that it verified, of at most 10 certificates and
// 100 KiB in DER, and leaves out all else that the CA sent, in whatever order, and what Go
// cannot read. The leaf's NotBefore may be up to [MaxClockSkew] after c.Now; the caller must
// then wait until it. An error is a [*CheckError].
func (c Check) Chain(pemBytes []byte) (*Chain, error) {
	chain := &Chain{}
	for _, check := range []func(*Chain) error{
		func(chain *Chain) error { return chain.parse(pemBytes) }, c.key, c.usage, c.names, c.subject, c.times, c.root,
	} {
		if err := check(chain); err != nil {
			return nil, err
		}
	}
	chain.leaveOut()
	return chain, nil
}

func (chain *Chain) parse(pemBytes []byte) (err error) {
	chain.sent, chain.unusable, err = UsableCertificates(pemBytes)
	if err != nil {
		return failed("format", "%v", err)
	}
	if n := len(chain.sent) + len(chain.unusable); n > maxReply {
		return failed("format", "the chain has %d certificates, %d are allowed", n, maxReply)
	}
	return nil
}

// leaveOut describes what is not served.
func (chain *Chain) leaveOut() {
	for _, cert := range chain.sent {
		if !cert.Equal(chain.Root) && !slices.ContainsFunc(chain.Certificates, cert.Equal) {
			chain.LeftOut = append(chain.LeftOut, fmt.Sprintf("%s (%s)", nameOf(cert), Fingerprint(cert)[:16]))
		}
	}
	for _, err := range chain.unusable {
		chain.LeftOut = append(chain.LeftOut, err.Error())
	}
}

func sizeOf(certs []*x509.Certificate) (size int) {
	for _, cert := range certs {
		size += len(cert.Raw)
	}
	return size
}

// key finds the leaf.
func (c Check) key(chain *Chain) error {
	at := slices.IndexFunc(chain.sent, func(cert *x509.Certificate) bool { return SameKey(c.Key, cert.PublicKey) })
	switch {
	case at < 0 && len(chain.unusable) > 0:
		return failed("key", "no certificate of the reply has the public key of the request; %v", chain.unusable[0])
	case at < 0:
		return failed("key", "the leaf's public key is not that of the request")
	}
	chain.Leaf = chain.sent[at]
	return nil
}

func (c Check) usage(chain *Chain) error { return CheckUsage(chain.Leaf) }

// CheckUsage returns a [*CheckError] if a leaf may sign other certificates, or does not fit TLS.
func CheckUsage(leaf *x509.Certificate) error {
	switch {
	case leaf.IsCA, leaf.KeyUsage&signsOthers != 0:
		return failed("ca", "the leaf may sign certificates or revocation lists")
	case leaf.KeyUsage != 0 && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return failed("usage", "the leaf's key usage has no digital signature, which TLS needs")
	case !fitsTLS(leaf):
		return failed("usage", "the leaf's extended key usage has neither TLS server nor TLS client authentication")
	}
	return nil
}

// signsOthers are the usages that a leaf must not have (X509-SVID, section 4.3).
const signsOthers = x509.KeyUsageCertSign | x509.KeyUsageCRLSign

func fitsTLS(leaf *x509.Certificate) bool {
	for _, usage := range leaf.ExtKeyUsage {
		switch usage {
		case x509.ExtKeyUsageAny, x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth:
			return true
		}
	}
	return len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) == 0 // no extension means any use
}

func (c Check) names(chain *Chain) error {
	if c.Names == AnyName && len(chain.Leaf.URIs) <= 1 {
		chain.Identity, _ = shownIdentity(chain.Leaf) // the CA decides
		return nil
	}
	got, err := IdentityOf(chain.Leaf)
	if err != nil {
		return failed("names", "%v", err)
	}
	chain.Identity = got
	switch {
	case c.Names == ExactNames && !got.Equal(c.Identity):
		return failed("names", "asked for %.256q, the leaf has %.256q", c.Identity.String(), got.String())
	case c.Names == TrustDomainName && (got.TrustDomain() == "" || got.TrustDomain() != c.Identity.TrustDomain()):
		return failed("names", "asked for trust domain %q, the leaf has %.256q", c.Identity.TrustDomain(), got.String())
	}
	return nil
}

// subject checks what some programs read as names: the common name as a DNS name or a user,
// organizations as Kubernetes' groups. Other attributes are the CA's own.
func (c Check) subject(chain *Chain) error {
	subject := chain.Leaf.Subject
	for _, group := range subject.Organization {
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(group)), "system:") {
			return failed("names", "the leaf has the organization %.256q, which is a group of Kubernetes' own", group)
		}
	}
	cn := subject.CommonName
	if c.Names == AnyName || cn == "" || cn == c.RequestID || chain.Identity.has(cn) || c.Identity.has(cn) {
		return nil
	}
	return failed("names", "the leaf has the common name %.256q, which is not one of the requested names; configure the CA to leave it empty, or relax identity_check", cn)
}

func (c Check) times(chain *Chain) error {
	leaf := chain.Leaf
	switch {
	case !leaf.NotAfter.After(leaf.NotBefore):
		return failed("expired", "the leaf ends (%s) before it begins (%s)", clock.Stamp(leaf.NotAfter), clock.Stamp(leaf.NotBefore))
	case !leaf.NotAfter.After(c.Now):
		return failed("expired", "the leaf ended at %s, it is %s", clock.Stamp(leaf.NotAfter), clock.Stamp(c.Now))
	case leaf.NotBefore.After(c.Now.Add(MaxClockSkew)):
		return failed("not-before", "the leaf begins at %s, more than %s after now (%s)", clock.Stamp(leaf.NotBefore), MaxClockSkew, clock.Stamp(c.Now))
	case c.tooLong(leaf):
		return failed("not-after", "the leaf ends at %s, %s was asked for; accept_longer_ttl lets it pass", clock.Stamp(leaf.NotAfter), clock.Stamp(c.AskedUntil))
	}
	return nil
}

func (c Check) tooLong(leaf *x509.Certificate) bool {
	return !c.AcceptLonger && !c.AskedUntil.IsZero() && leaf.NotAfter.After(c.AskedUntil.Add(MaxClockSkew))
}

// root verifies the chain up to a root. Of several paths it takes the one that lasts
// longest, then the longest: a CA sends cross-signed certificates for peers with other
// roots.
func (c Check) root(chain *Chain) error {
	if c.Roots.Len() == 0 {
		return failed("roots", "there is no root to verify the chain with")
	}
	intermediates := x509.NewCertPool()
	for _, cert := range chain.sent {
		if cert != chain.Leaf {
			intermediates.AddCert(cert)
		}
	}
	verified, err := chain.Leaf.Verify(x509.VerifyOptions{
		Roots:         c.Roots.shared(),
		Intermediates: intermediates,
		CurrentTime:   clock.Later(c.Now, chain.Leaf.NotBefore),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return c.noPath(chain, err)
	}
	verified = slices.DeleteFunc(verified, func(path []*x509.Certificate) bool {
		return len(path)-1 > maxChain || sizeOf(path[:len(path)-1]) > maxCertificate
	})
	if len(verified) == 0 {
		return failed("format", "the chain has more than %d certificates or %d bytes: peers read no more", maxChain, maxCertificate)
	}
	chain.take(slices.MaxFunc(verified, func(a, b []*x509.Certificate) int {
		return cmp.Or(endOf(a).Compare(endOf(b)), cmp.Compare(len(a), len(b)))
	}))
	return nil
}

// noPath returns why there is no path to a root. Names that a CA may not certify are a fault of these
// names, not of the chain: other leaves of the CA may verify.
func (c Check) noPath(chain *Chain, err error) error {
	check := "chain"
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.CANotAuthorizedForThisName {
		check = "names"
	}
	err = Explain(err, chain.Leaf, slices.Concat(chain.sent, c.Roots.Certificates())...)
	if len(chain.unusable) > 0 {
		err = fmt.Errorf("%w; left out: %w", err, chain.unusable[0])
	}
	return failed(check, "%v", err)
}

// take serves a verified path.
func (chain *Chain) take(path []*x509.Certificate) {
	last := len(path) - 1
	chain.Certificates, chain.Root = path[:last:last], path[last]
	chain.Ends, chain.EndsAbove = endOf(path), endOf(path[1:])
	chain.PEM = EncodeCertificates(chain.Certificates)
}

// endOf returns when the first certificate of a path ends.
func endOf(path []*x509.Certificate) time.Time {
	return slices.MinFunc(path, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}
