package certmanager

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/cert-manager/issuer-lib/controllers/signer"

	"github.com/countersign-dev/countersign/internal/text"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxCSR is more than a CSR with an RSA key of 8,192 bits has, in bytes of PEM.
const maxCSR = 32 << 10

// refusal is a final word on a request. Its text is for whoever made it.
type refusal string

func (r refusal) Error() string { return string(r) }

func refused(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// judge compares a request with what the policy grants its namespace, and returns it as it is put
// to the engine. An error is a [refusal].
func (d *Door) judge(cr signer.CertificateRequestObject, authority string) (ra.Request, error) {
	req := ra.Request{
		Subject: ra.Subject{Kind: ra.Namespace, Cluster: d.cfg.Cluster, Namespace: cr.GetNamespace(), Verified: "certificate request"},
		Door:    EngineDoor(authority).Name, Object: string(cr.GetUID()), Asked: cr.GetCreationTimestamp().Time,
	}
	details, err := cr.GetCertificateDetails()
	if err != nil {
		return req, refused("the request's usages: %s", text.Clean(err.Error()))
	}
	granted := d.cfg.Decide(req.Subject, req.Door)
	if granted.Denied != "" {
		return req, refused("the policy for authority %s grants the namespace nothing: %s", text.Quote(authority), text.Clean(granted.Denied))
	}
	if err := checkDetails(details, granted.Usages); err != nil {
		return req, err
	}
	req.CSR, req.TTL = details.CSR, details.Duration
	req.DNSNames, err = askedOf(details, granted.Identity)
	return req, err
}

// askedOf reads a CSR and returns the names that it asks for besides those that are granted, all of
// which it must have.
func askedOf(details signer.CertificateDetails, granted pki.Identity) (asked []string, err error) {
	if len(details.CSR) > maxCSR {
		return nil, refused("the certificate signing request has %d bytes, %d are allowed", len(details.CSR), maxCSR)
	}
	csr, err := pki.ParseCSR(details.CSR)
	if err != nil {
		return nil, refused("%s", text.Clean(err.Error()))
	}
	names, err := pki.IdentityOfCSR(csr)
	if err != nil {
		return nil, refused("the certificate signing request: %s", text.Clean(err.Error()))
	}
	if err := checkSubject(csr, names); err != nil {
		return nil, err
	}
	// Some authorities copy the extensions of a CSR. They must say what the request says.
	if _, err := details.CertificateTemplate(); err != nil {
		return nil, refused("the certificate signing request differs from the request: %s", text.Clean(err.Error()))
	}
	return beyond(names, granted)
}

// beyond returns the DNS names that are not granted. The engine refuses those that cannot be asked
// for; of all others there must be exactly those that are granted.
func beyond(names, granted pki.Identity) (asked []string, err error) {
	rest := names
	rest.DNSNames = nil
	for _, name := range names.DNSNames {
		if slices.Contains(granted.DNSNames, name) {
			rest.DNSNames = append(rest.DNSNames, name)
		} else {
			asked = append(asked, name)
		}
	}
	if !rest.Equal(granted) {
		return nil, refused("CSR names %s; the policy fixes this namespace's names to %s", text.Quote(names.String()), text.Quote(granted.String()))
	}
	return asked, nil
}

// checkSubject refuses a subject other than the common name that many clients add, one of the
// names: with O=system:masters, whoever takes the CA for one of users would take its holder for one.
func checkSubject(csr *x509.CertificateRequest, names pki.Identity) error {
	cn := csr.Subject.CommonName
	if n := len(pki.SubjectValues(csr.Subject)); n > 1 || n == 1 && (cn == "" || !slices.Contains(names.DNSNames, strings.ToLower(cn))) {
		return refused("the certificate signing request has the subject %s: leave it empty, or put one of the DNS names into the common name and nothing else", text.Quote(csr.Subject.String()))
	}
	return nil
}

// harmless are the key usages (RFC 5280, section 4.2.1.3) that come with any key of a TLS peer.
const harmless = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageKeyAgreement

// checkDetails bounds what the certificate can be used for. Where the rule demands usages, the
// request must have them: a certificate that an authority made as asked would be given to nobody.
func checkDetails(details signer.CertificateDetails, usages ra.Usages) error {
	switch {
	case details.IsCA:
		return refused("isCA is set: certificates of authorities are not granted")
	case details.KeyUsage&^harmless != 0:
		return refused("usages has more than digital signature, key encipherment and key agreement for the key: write less")
	case details.KeyUsage != 0 && details.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return refused("usages has no digital signature, which TLS needs: add it")
	}
	server, client := false, false
	for _, usage := range details.ExtKeyUsage {
		server, client = server || usage == x509.ExtKeyUsageServerAuth, client || usage == x509.ExtKeyUsageClientAuth
		if usage != x509.ExtKeyUsageServerAuth && usage != x509.ExtKeyUsageClientAuth {
			return refused("usages has something other than server auth and client auth for certificates of TLS: write less")
		}
	}
	if usages != ra.AnyUsage && (server != (usages != ra.Client) || client != (usages != ra.Server)) {
		return refused("usages has server auth: %t, client auth: %t; the rule gives certificates for %q: write that", server, client, usages)
	}
	return nil
}
