package certmanager

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"

	"github.com/cert-manager/issuer-lib/controllers/signer"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// noReason leaves the reason to issuer-lib.
const noReason = ""

// judge compares a request with what the policy grants its namespace. A refusal is recorded.
func (d *Door) judge(ctx context.Context, cr signer.CertificateRequestObject, authority string) (*ra.Order, error) {
	req := ra.Request{
		Subject: ra.Subject{Kind: ra.Namespace, Cluster: d.cfg.Cluster, Namespace: cr.GetNamespace(), Verified: "certificate request"},
		Door:    EngineDoor(authority).Name, Object: string(cr.GetUID()), Asked: cr.GetCreationTimestamp().Time, NamesOfCSR: true,
	}
	details, err := cr.GetCertificateDetails()
	switch {
	case err != nil:
		err = signing.Refuse(noReason, "the request's usages: %s", text.Clean(err.Error()))
	case details.IsCA: // before the engine reads it in the CSR, in other words
		err = signing.Refuse(noReason, "isCA is set: certificates of authorities are not granted")
	}
	if err != nil {
		d.cfg.Issuer.Refuse(ctx, req, err)
		return nil, err
	}
	req.CSR, req.TTL = details.CSR, details.Duration
	o, err := d.cfg.Issuer.Prepare(ctx, req)
	if err != nil {
		return nil, ofPolicy(err, authority)
	}
	if err := check(o, details); err != nil {
		o.Refuse(ctx, err)
		return nil, err
	}
	return o, nil
}

// ofPolicy adds which policy grants nothing.
func ofPolicy(err error, authority string) error {
	out := signing.OutcomeOf(err)
	if !out.Final || out.Names || !errors.Is(err, ca.ErrDenied) {
		return err
	}
	return signing.Refuse(noReason, "the policy for authority %s grants the namespace nothing: %s", text.Quote(authority), out.Message)
}

// check compares what is asked for with what is granted. An error is a refusal.
func check(o *ra.Order, details signer.CertificateDetails) error {
	granted := o.Decision()
	if err := checkDetails(details, granted.Usages); err != nil {
		return err
	}
	csr, names, err := o.ParsedCSR()
	if err != nil {
		return signing.Refuse(noReason, "the certificate signing request: %s", text.Clean(err.Error()))
	}
	if err := checkSubject(csr, names); err != nil {
		return err
	}
	// Some authorities copy the extensions of a CSR. They must match the request.
	if _, err := details.CertificateTemplate(); err != nil {
		return signing.Refuse(noReason, "the certificate signing request differs from the request: %s", text.Clean(err.Error()))
	}
	if !names.Equal(granted.Identity) {
		return signing.Refuse(noReason, "CSR names %s; the policy fixes this namespace's names to %s", text.Quote(names.String()), text.Quote(granted.Identity.String()))
	}
	return nil
}

// checkSubject refuses a subject other than a common name that is one of the DNS names, which many
// clients add. With O=system:masters, a server that trusts the CA for users would treat the holder as
// an administrator.
func checkSubject(csr *x509.CertificateRequest, names pki.Identity) error {
	cn := csr.Subject.CommonName
	if n := len(pki.SubjectValues(csr.Subject)); n > 1 || n == 1 && (cn == "" || !slices.Contains(names.DNSNames, strings.ToLower(cn))) {
		return signing.Refuse(noReason, "the certificate signing request has the subject %s: leave it empty, or put one of the DNS names into the common name and nothing else", text.Quote(csr.Subject.String()))
	}
	return nil
}

// harmless are the key usages (RFC 5280, section 4.2.1.3) that come with any key of a TLS peer.
const harmless = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement

// checkDetails bounds what the certificate can be used for. Where the rule requires usages, the
// request must have them: a certificate issued as requested would fail the check of the reply.
func checkDetails(details signer.CertificateDetails, usages ra.Usages) error {
	switch {
	case details.KeyUsage&^harmless != 0:
		return signing.Refuse(noReason, "usages has more than digital signature, key encipherment and key agreement for the key: write less")
	case details.KeyUsage != 0 && details.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return signing.Refuse(noReason, "usages has no digital signature, which TLS needs: add it")
	}
	server, client := false, false
	for _, usage := range details.ExtKeyUsage {
		server, client = server || usage == x509.ExtKeyUsageServerAuth, client || usage == x509.ExtKeyUsageClientAuth
		if usage != x509.ExtKeyUsageServerAuth && usage != x509.ExtKeyUsageClientAuth {
			return signing.Refuse(noReason, "usages has something other than server auth and client auth for certificates of TLS: write less")
		}
	}
	if usages != ra.AnyUsage && (server != (usages != ra.Client) || client != (usages != ra.Server)) {
		return signing.Refuse(noReason, "usages has server auth: %t, client auth: %t; the rule gives certificates for %q: write that", server, client, usages)
	}
	return nil
}
