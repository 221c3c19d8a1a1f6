package csr

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// minSeconds is the least lifetime that a request can ask for.
const minSeconds = 600

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

// judge compares a request with what the policy grants. A refusal is recorded.
func (d *Door) judge(ctx context.Context, r *request) (*ra.Order, error) {
	req, err := d.asked(r)
	if err != nil {
		d.cfg.Issuer.Refuse(ctx, req, err)
		return nil, err
	}
	o, err := d.cfg.Issuer.Prepare(ctx, req)
	if err != nil {
		return nil, outcome(err)
	}
	return o, recorded(ctx, o, check(o, r.Spec.Usages))
}

// recorded records a refusal, and returns it.
func recorded(ctx context.Context, o *ra.Order, err error) error {
	if no, final := signing.Refused(err); final {
		o.Refuse(ctx, no)
	}
	return err
}

// asked is what a request asks the engine for. An error is a refusal.
func (d *Door) asked(r *request) (ra.Request, error) {
	req := ra.Request{Door: doorOf(r), CSR: r.Spec.Request, Object: string(r.UID), Asked: r.CreationTimestamp.Time}
	var err error
	if req.Subject, err = SubjectOf(d.cfg.Cluster, &r.Spec); err != nil {
		req.Subject = ra.Subject{Kind: ra.User, Cluster: d.cfg.Cluster, User: r.Spec.Username}
		return req, signing.Refuse(reasonRequester, "%s", err)
	}
	if seconds := r.Spec.ExpirationSeconds; seconds != nil {
		if *seconds < minSeconds {
			return req, signing.Refuse(reasonLifetime, "expirationSeconds is %d, %d is the least", *seconds, minSeconds)
		}
		req.TTL = time.Duration(*seconds) * time.Second
	}
	return req, nil
}

// check compares the CSR with what is granted. An error is a refusal.
func check(o *ra.Order, usages []certificatesv1.KeyUsage) error {
	csr, names, err := o.ParsedCSR()
	if err == nil {
		err = checkNames(names)
	}
	if no := checkSubject(csr); no != nil {
		return no
	}
	if err != nil {
		return signing.Refuse(reasonNames, "the certificate signing request %s", text.Clean(err.Error()))
	}
	granted := o.Decision()
	if !names.Equal(granted.Identity) {
		return signing.Refuse(reasonNames, "the certificate signing request names %s; the policy gives the requester exactly %s", text.Quote(names.String()), text.Quote(granted.Identity.String()))
	}
	return checkUsages(usages, granted.Usages)
}

// checkNames refuses names that look as if Kubernetes itself had them.
func checkNames(names pki.Identity) error {
	for _, name := range names.Names() {
		if strings.Contains(strings.ToLower(name), "system:") {
			return fmt.Errorf("names %.256q: names with system: are Kubernetes' own", name)
		}
	}
	return nil
}

// checkSubject refuses any subject: with one such as O=system:masters, a server that trusts the
// CA for users would take its holder for a user.
func checkSubject(csr *x509.CertificateRequest) error {
	if strings.Contains(strings.ToLower(string(csr.RawSubject)), "system:") {
		return signing.Refuse(reasonSubject, "the subject %.256q of the certificate signing request names a user or a group of Kubernetes itself: leave it empty", csr.Subject)
	}
	if len(pki.SubjectValues(csr.Subject)) > 0 {
		return signing.Refuse(reasonSubject, "the certificate signing request has the subject %.256q: leave it empty, and put the names into the subject alternative names", csr.Subject)
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
			return signing.Refuse(reasonUsages, "the usage %.64q is not granted: use some of %q", usage, allowed)
		}
	}
	return nil
}
