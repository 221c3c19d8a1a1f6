package googleca

import (
	"context"
	"crypto/x509"
	"encoding/pem"

	"cloud.google.com/go/security/privateca/apiv1/privatecapb"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// CertifiesNames implements [ca.NameCertifier]. It is [ca.Invalid] where the settings let the
// CSR or the caller's own name decide. Whether the pool allows it, [Settings.ValidateOnline]
// asks.
func (c *CA) CertifiesNames(context.Context) error {
	if c.settings.certifiesNames() {
		return nil
	}
	return ca.Errorf(ca.Invalid, "protocol %s with subject_mode %s does not certify the names of a request whose CSR has others", c.settings.Protocol, c.settings.SubjectMode)
}

func (s Settings) certifiesNames() bool { return s.Protocol == CAS && s.SubjectMode == CSRNames }

// checkNames refuses names that the settings do not allow.
func (s Settings) checkNames(req ca.SignRequest) error {
	names, repeated, err := namesOf(req)
	switch others := len(names.DNSNames) + len(names.IPAddresses); {
	case err != nil:
		return err
	case others > 0 && !s.certifiesNames():
		return ca.Errorf(ca.Invalid, "protocol %s with subject_mode %s signs nothing but a SPIFFE ID: remove the DNS names and IP addresses from the secret, or use another provider", s.Protocol, s.SubjectMode)
	case !repeated && !s.certifiesNames():
		return ca.Errorf(ca.Invalid, "the CSR has other names than the request, which protocol %s with subject_mode %s does not certify: use protocol cas with subject_mode csr", s.Protocol, s.SubjectMode)
	}
	return nil
}

// namesOf returns the names of the request, and whether the CSR repeats them.
func namesOf(req ca.SignRequest) (names pki.Identity, repeated bool, err error) {
	csr, err := pki.ParseCSR(req.CSR)
	if err != nil {
		return names, false, ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	names, err = pki.RequestedIdentity(req.SubjectID, req.DNSNames, req.IPAddresses)
	if err != nil {
		return names, false, ca.Errorf(ca.Invalid, "the request: %w", err)
	}
	own, err := pki.IdentityOfCSR(csr)
	return names, err == nil && own.Equal(names) && csr.Subject.String() == "", nil
}

// configured returns a configuration with the key of the CSR and these names, for TLS servers
// and clients. Without names, the service adds the name of the authenticated caller.
func configured(csrPEM []byte, names pki.Identity) (*privatecapb.CertificateConfig, error) {
	csr, err := pki.ParseCSR(csrPEM)
	if err != nil {
		return nil, ca.Errorf(ca.Invalid, "the CSR: %w", err)
	}
	subject := &privatecapb.CertificateConfig_SubjectConfig{Subject: &privatecapb.Subject{}}
	if !names.IsZero() {
		subject.SubjectAltName = alternative(names)
	}
	return &privatecapb.CertificateConfig{
		PublicKey: &privatecapb.PublicKey{
			Format: privatecapb.PublicKey_PEM,
			Key:    pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: csr.RawSubjectPublicKeyInfo}),
		},
		SubjectConfig: subject, X509Config: forTLS(csr),
	}, nil
}

func alternative(names pki.Identity) *privatecapb.SubjectAltNames {
	out := &privatecapb.SubjectAltNames{DnsNames: names.DNSNames}
	if names.SPIFFEID != nil {
		out.Uris = []string{names.SPIFFEID.String()}
	}
	for _, ip := range names.IPAddresses {
		out.IpAddresses = append(out.IpAddresses, ip.String())
	}
	return out
}

func forTLS(csr *x509.CertificateRequest) *privatecapb.X509Parameters {
	_, rsa := csr.PublicKey.(interface{ Size() int })
	isCA := false
	return &privatecapb.X509Parameters{
		CaOptions: &privatecapb.X509Parameters_CaOptions{IsCa: &isCA},
		KeyUsage: &privatecapb.KeyUsage{
			BaseKeyUsage:     &privatecapb.KeyUsage_KeyUsageOptions{DigitalSignature: true, KeyEncipherment: rsa},
			ExtendedKeyUsage: &privatecapb.KeyUsage_ExtendedKeyUsageOptions{ServerAuth: true, ClientAuth: true},
		},
	}
}
