package chain

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// The limits of a bag.
const (
	maxBag          = 1 << 20
	maxCertificates = 64
)

// Parse returns the certificates of all bags without duplicates, those that end last first. A bag
// is PEM with blocks CERTIFICATE, PKCS7 or CMS in any order, or PKCS #7 as DER or bare base64.
// Its signatures, revocation lists and attribute certificates are ignored. An error has the
// reason [ca.Internal] and does not quote the bag.
func Parse(bags ...[]byte) ([]*x509.Certificate, error) {
	var ders [][]byte
	var err error
	for _, bag := range bags {
		found, wrong := dersIn(bag)
		ders, err = append(ders, found...), errors.Join(err, wrong)
	}
	switch {
	case err == nil && len(ders) == 0:
		err = errors.New("there are none")
	case err == nil && len(ders) > maxCertificates:
		err = errMany
	}
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "the authority's certificates: %w", err)
	}
	var certs []*x509.Certificate
	for i, der := range ders {
		cert, wrong := pki.ParseCertificate(der)
		if wrong != nil {
			err = fmt.Errorf("certificate %d of %d %w", i+1, len(ders), wrong)
			break
		}
		certs = append(certs, cert)
	}
	if err != nil {
		return nil, ca.Errorf(ca.Internal, "the authority's certificates: %w", err)
	}
	slices.SortFunc(certs, func(a, b *x509.Certificate) int {
		if later := b.NotAfter.Compare(a.NotAfter); later != 0 {
			return later
		}
		return bytes.Compare(a.Raw, b.Raw) // the same bag in another order is the same
	})
	return slices.CompactFunc(certs, (*x509.Certificate).Equal), nil
}

// dersIn returns the certificates of a bag in DER.
func dersIn(bag []byte) (all [][]byte, err error) {
	if len(bag) > maxBag {
		return nil, fmt.Errorf("there are %d bytes, %d are allowed", len(bag), maxBag)
	}
	if !bytes.Contains(bag, []byte("-----BEGIN")) {
		return fromPKCS7(unwrapped(bag))
	}
	for {
		block, rest := pem.Decode(bag)
		if block == nil {
			break
		}
		found := [][]byte{block.Bytes}
		switch block.Type {
		case "CERTIFICATE":
		case "PKCS7", "CMS":
			if found, err = fromPKCS7(block.Bytes); err != nil {
				return nil, err
			}
		default:
			return nil, errors.New("a PEM block is no CERTIFICATE, PKCS7 or CMS")
		}
		if all = append(all, found...); len(all) > maxCertificates {
			return nil, errMany
		}
		bag = rest
	}
	if bytes.Contains(bag, []byte("-----BEGIN")) {
		return nil, errors.New("a PEM block is malformed") // none may vanish silently
	}
	return all, nil
}

var (
	errMany    = fmt.Errorf("there are more than %d", maxCertificates)
	errNoPKCS7 = errors.New("it is neither PEM nor PKCS #7 in DER or base64")
)

// unwrapped returns DER, also where it came as base64 (RFC 7030, section 4.1.3).
func unwrapped(bag []byte) []byte {
	text := bytes.Join(bytes.Fields(bag), nil)
	der := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(der, text)
	if err != nil {
		return bag
	}
	return der[:n]
}

// contentInfo and signedData are those of RFC 5652, sections 3 and 5.1, as far as needed.
type contentInfo struct {
	Type    asn1.ObjectIdentifier
	Content asn1.RawValue `asn1:"explicit,optional,tag:0"`
}

type signedData struct {
	Version      int
	Algorithms   asn1.RawValue
	Encapsulated asn1.RawValue
	Certificates asn1.RawValue `asn1:"optional,tag:0"`
	Revocations  asn1.RawValue `asn1:"optional,tag:1"`
	Signers      asn1.RawValue
}

var signedDataType = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}

// fromPKCS7 returns the certificates of a SignedData in DER.
func fromPKCS7(der []byte) (all [][]byte, err error) {
	var info contentInfo
	if rest, err := asn1.Unmarshal(der, &info); err != nil || len(rest) > 0 {
		return nil, errNoPKCS7
	}
	if !info.Type.Equal(signedDataType) {
		return nil, errors.New("the PKCS #7 is no SignedData")
	}
	var signed signedData
	if rest, err := asn1.Unmarshal(info.Content.Bytes, &signed); err != nil || len(rest) > 0 {
		return nil, errNoPKCS7
	}
	for rest := signed.Certificates.Bytes; len(rest) > 0; {
		var one asn1.RawValue
		if rest, err = asn1.Unmarshal(rest, &one); err != nil {
			return nil, errNoPKCS7
		}
		if one.Class != asn1.ClassUniversal || one.Tag != asn1.TagSequence {
			continue // an attribute certificate
		}
		if all = append(all, one.FullBytes); len(all) > maxCertificates {
			return nil, errMany
		}
	}
	return all, nil
}
