package pki

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
)

// The tags of a GeneralName (RFC 5280, section 4.2.1.6).
const (
	tagDNS = 2
	tagURI = 6
	tagIP  = 7
)

var oidSubjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// CreateCSR returns a PKCS #10 CSR for id: one PEM block "CERTIFICATE REQUEST" with an
// empty subject and one critical extension, the subject alternative names. istiod's
// registration authority accepts only this form, and other CAs accept it too. CreateCSR
// rejects an identity without names.
func CreateCSR(key crypto.Signer, id Identity) ([]byte, error) {
	if id.IsZero() {
		return nil, errors.New("a certificate signing request needs a SPIFFE ID, a DNS name or an IP address")
	}
	names, err := marshalNames(id)
	if err != nil {
		return nil, err
	}
	der, err := createRequest(key, pkix.Extension{Id: oidSubjectAltName, Critical: true, Value: names})
	if err != nil {
		return nil, fmt.Errorf("create certificate signing request: %w", err)
	}
	return EncodeBlock(requestBlock, der), nil
}

func marshalNames(id Identity) ([]byte, error) {
	var names []asn1.RawValue
	add := func(tag int, value []byte) {
		names = append(names, asn1.RawValue{Tag: tag, Class: asn1.ClassContextSpecific, Bytes: value})
	}
	if id.SPIFFEID != nil {
		add(tagURI, []byte(id.SPIFFEID.String()))
	}
	for _, name := range id.DNSNames {
		add(tagDNS, []byte(name))
	}
	for _, ip := range id.IPAddresses {
		add(tagIP, ip.AsSlice())
	}
	return asn1.Marshal(names)
}

// ParseCSR parses exactly one PEM block "CERTIFICATE REQUEST" of at most 1 MiB and
// verifies the CSR's signature. Anything else is an error.
func ParseCSR(pemBytes []byte) (*x509.CertificateRequest, error) {
	der, err := onlyBlock(pemBytes, requestBlock)
	if err != nil {
		return nil, err
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("the certificate signing request %w", cmp.Or(lacking(der), errors.New("is malformed")))
	}
	if err := checkKeySize(csr.PublicKey); err != nil {
		return nil, fmt.Errorf("the certificate signing request %w", err)
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the certificate signing request %w", cmp.Or(lacking(der), errors.New("has a signature of its own that does not hold")))
	}
	return csr, nil
}

// SubjectValues returns the attributes of a subject that say something. Those whose value is the
// empty string do not: Istio's agents send a subject that is one empty organization.
func SubjectValues(subject pkix.Name) []pkix.AttributeTypeAndValue {
	return slices.DeleteFunc(slices.Clone(subject.Names), func(a pkix.AttributeTypeAndValue) bool { return a.Value == "" })
}
