package csr

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// maxCSR is more than a CSR with an RSA key of 8,192 bits has, in bytes of PEM.
	maxCSR = 32 << 10
	// minSeconds is the least that a request can ask for.
	minSeconds = 600
)

// The reasons of a refusal.
const (
	reasonCSR       = "InvalidCertificateSigningRequest"
	reasonRequester = "RequesterNotEligible"
	reasonPolicy    = "NotPermitted"
	reasonSubject   = "SubjectNotAllowed"
	reasonNames     = "NamesNotPermitted"
	reasonUsages    = "UsagesNotPermitted"
	reasonLifetime  = "InvalidLifetime"
	reasonKeyType   = "UnsupportedKeyType"
)

// refusal is a final word on a request. Its text is for whoever made it.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

func refused(reason, format string, args ...any) error {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// order is a request as it is put to the engine.
type order struct {
	ra.Request
	names pki.Identity
	rule  string
}

// judge compares a request with what the policy grants. An error is a *refusal.
func (d *Door) judge(r *request) (order, error) {
	subject, err := SubjectOf(d.cfg.Cluster, &r.Spec)
	if err != nil {
		return order{}, refused(reasonRequester, "%s", err)
	}
	o := order{Request: ra.Request{
		Subject: subject, Door: doorOf(r), CSR: r.Spec.Request, Object: string(r.UID), Asked: r.CreationTimestamp.Time,
	}}
	if seconds := r.Spec.ExpirationSeconds; seconds != nil {
		if *seconds < minSeconds {
			return o, refused(reasonLifetime, "expirationSeconds is %d, %d is the least", *seconds, minSeconds)
		}
		o.TTL = time.Duration(*seconds) * time.Second
	}
	granted := d.cfg.Decide(subject, o.Door)
	if granted.Denied != "" {
		return o, refused(reasonPolicy, "the policy for this signer grants the requester nothing: %s", text.Clean(granted.Denied))
	}
	o.rule = granted.Rule
	csr, err := read(r.Spec.Request)
	if err != nil {
		return o, err
	}
	if o.names, err = namesOf(csr); err != nil {
		return o, err
	}
	if !o.names.Equal(granted.Identity) {
		return o, refused(reasonNames, "the certificate signing request names %s; the policy gives the requester exactly %s", text.Quote(o.names.String()), text.Quote(granted.Identity.String()))
	}
	if err := granted.Usages.CheckCSR(csr); err != nil {
		return o, refused(reasonUsages, "%s", text.Clean(err.Error()))
	}
	return o, checkUsages(r.Spec.Usages, granted.Usages)
}

func read(pemBytes []byte) (*x509.CertificateRequest, error) {
	if len(pemBytes) > maxCSR {
		return nil, refused(reasonCSR, "the certificate signing request has %d bytes, %d are allowed", len(pemBytes), maxCSR)
	}
	csr, err := pki.ParseCSR(pemBytes)
	if err != nil {
		return nil, refused(reasonCSR, "%s", text.Clean(err.Error()))
	}
	return csr, nil
}

// namesOf returns a CSR's names. The subject must be empty: with a subject such as O=system:masters,
// whoever takes the CA for one of users would take its holder for a user.
func namesOf(csr *x509.CertificateRequest) (names pki.Identity, err error) {
	if err := checkSubject(csr); err != nil {
		return names, err
	}
	if names, err = pki.IdentityOfCSR(csr); err != nil {
		return names, refused(reasonNames, "the certificate signing request: %s", text.Clean(err.Error()))
	}
	for _, name := range names.Names() {
		if strings.Contains(strings.ToLower(name), "system:") {
			return names, refused(reasonNames, "the certificate signing request names %.256q: names with system: are Kubernetes' own", name)
		}
	}
	return names, nil
}

func checkSubject(csr *x509.CertificateRequest) error {
	if strings.Contains(strings.ToLower(string(csr.RawSubject)), "system:") {
		return refused(reasonSubject, "the subject %.256q of the certificate signing request names a user or a group of Kubernetes itself: leave it empty", csr.Subject)
	}
	if len(pki.SubjectValues(csr.Subject)) > 0 {
		return refused(reasonSubject, "the certificate signing request has the subject %.256q: leave it empty, and put the names into the subject alternative names", csr.Subject)
	}
	return nil
}

// harmless are the key usages (RFC 5280, section 4.2.1.3) that come with any key of a TLS peer.
var harmless = []certificatesv1.KeyUsage{
	certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature,
	certificatesv1.UsageKeyEncipherment, certificatesv1.UsageKeyAgreement,
}

// checkUsages refuses usages that the rule does not give.
func checkUsages(asked []certificatesv1.KeyUsage, given ra.Usages) error {
	allowed := slices.Clone(harmless)
	if given != ra.Client {
		allowed = append(allowed, certificatesv1.UsageServerAuth)
	}
	if given != ra.Server {
		allowed = append(allowed, certificatesv1.UsageClientAuth)
	}
	for _, usage := range asked {
		if !slices.Contains(allowed, usage) {
			return refused(reasonUsages, "the usage %.64q is not granted: use some of %q", usage, allowed)
		}
	}
	return nil
}
