package awspca

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acmpca/types"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

const (
	// csrTemplate certifies the CSR's names, and apiTemplate those of the call.
	csrTemplate = "EndEntityCertificate/V1"
	apiTemplate = "EndEntityCertificate_APIPassthrough/V1"
	// maxCommon is X.509's limit for a common name and an organization.
	maxCommon = 64
)

// plan is how a request is certified.
type plan struct {
	template string
	names    *types.ApiPassthrough // nil: those of the CSR
}

// CertifiesNames implements [ca.NameCertifier]. It is [ca.Invalid] with a template that takes
// the names from the CSR.
func (c *CA) CertifiesNames(context.Context) error {
	if c.settings.fromCSR() {
		return ca.Errorf(ca.Invalid, "template %s certifies the names of the CSR", c.settings.Template)
	}
	return nil
}

// fromCSR reports whether the template takes nothing from the call.
func (s Settings) fromCSR() bool {
	return s.Template != "" && !strings.Contains(s.Template, "_API")
}

// plan chooses the template of a request.
func (s Settings) plan(req ca.SignRequest) (plan, error) {
	if req.ID == "" {
		return plan{}, ca.Errorf(ca.Invalid, "the request has no ID, which the service recognizes a retry by")
	}
	names, err := pki.RequestedIdentity(req.SubjectID, req.DNSNames, req.IPAddresses)
	if err != nil {
		return plan{}, ca.Errorf(ca.Invalid, "the request: %w", err)
	}
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return plan{}, ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	own, err := pki.IdentityOfCSR(csr)
	same := err == nil && own.Equal(names)
	switch {
	case s.fromCSR() && (!same || !nameless(csr.Subject.CommonName, names)):
		return plan{}, ca.Errorf(ca.Invalid, "the CSR has other names than the request, which template %s does not certify: remove the setting, or use an APIPassthrough template", s.Template)
	case s.fromCSR():
		return plan{template: s.Template}, nil
	case s.Template == "" && same && acceptable(csr):
		return plan{template: csrTemplate}, nil
	case s.Template == "":
		return plan{apiTemplate, passthrough(names)}, nil
	}
	return plan{s.Template, s.withUsages(csr, passthrough(names))}, nil
}

// nameless reports whether a common name adds no name.
func nameless(common string, names pki.Identity) bool {
	return common == "" || slices.Contains(names.Names(), common)
}

var oidSubjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// acceptable reports whether the service takes the CSR for all there is to certify: a subject
// would be certified, too, and without one the names have to be critical, or it is refused.
func acceptable(csr *x509.CertificateRequest) bool {
	return csr.Subject.String() == "" && slices.ContainsFunc(csr.Extensions, func(e pkix.Extension) bool {
		return e.Critical && e.Id.Equal(oidSubjectAltName)
	})
}

// passthrough returns the names as the call has them. It always has a subject: otherwise the
// CSR's would be certified, or names below an empty one that are not marked critical.
func passthrough(names pki.Identity) *types.ApiPassthrough {
	var all []types.GeneralName
	if names.SPIFFEID != nil {
		all = append(all, types.GeneralName{UniformResourceIdentifier: aws.String(names.SPIFFEID.String())})
	}
	for _, name := range names.DNSNames {
		all = append(all, types.GeneralName{DnsName: aws.String(name)})
	}
	for _, ip := range names.IPAddresses {
		all = append(all, types.GeneralName{IpAddress: aws.String(ip.String())})
	}
	return &types.ApiPassthrough{Subject: subject(names), Extensions: &types.Extensions{SubjectAlternativeNames: all}}
}

// subject is one of the names, or the organization that a SPIFFE ID belongs to.
func subject(names pki.Identity) *types.ASN1Subject {
	for _, name := range names.DNSNames {
		if len(name) <= maxCommon {
			return &types.ASN1Subject{CommonName: aws.String(name)}
		}
	}
	domain := names.TrustDomain()
	if domain == "" && len(names.IPAddresses) > 0 {
		return &types.ASN1Subject{CommonName: aws.String(names.IPAddresses[0].String())}
	}
	if domain == "" || len(domain) > maxCommon {
		domain = sessionName
	}
	return &types.ASN1Subject{Organization: aws.String(domain)}
}

// withUsages adds the usages of TLS servers and clients where the template has none.
func (s Settings) withUsages(csr *x509.CertificateRequest, names *types.ApiPassthrough) *types.ApiPassthrough {
	if !strings.HasPrefix(s.Template, "Blank") {
		return names
	}
	_, rsa := csr.PublicKey.(interface{ Size() int })
	names.Extensions.KeyUsage = &types.KeyUsage{DigitalSignature: true, KeyEncipherment: rsa}
	names.Extensions.ExtendedKeyUsage = []types.ExtendedKeyUsage{
		{ExtendedKeyUsageType: types.ExtendedKeyUsageTypeServerAuth}, {ExtendedKeyUsageType: types.ExtendedKeyUsageTypeClientAuth},
	}
	return names
}
