package chain

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
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
// is PEM with blocks CERTIFICATE, PKCS7 or CMS in any order, or PKCS #7 as BER, which includes DER,
// or bare base64. Its signatures, revocation lists and attribute certificates are ignored, and so
// are certificates that Go cannot read unless there is no other. An error has the reason
// [ca.Internal] and does not quote the bag.
func Parse(bags ...[]byte) ([]*x509.Certificate, error) {
	certs, _, err := parse(bags...)
	return certs, err
}

// parse also returns what Go cannot read, as it is.
func parse(bags ...[]byte) (certs []*x509.Certificate, unusable [][]byte, err error) {
	var ders [][]byte
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
		return nil, nil, ca.Errorf(ca.Internal, "the authority's certificates: %w", err)
	}
	for i, der := range ders {
		cert, wrong := pki.ParseCertificate(der)
		if wrong != nil {
			unusable, err = append(unusable, der), errors.Join(err, fmt.Errorf("certificate %d of %d %w", i+1, len(ders), wrong))
			continue
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, nil, ca.Errorf(ca.Internal, "the authority's certificates: none can be used: %w", err)
	}
	slices.SortFunc(certs, func(a, b *x509.Certificate) int {
		if later := b.NotAfter.Compare(a.NotAfter); later != 0 {
			return later
		}
		return bytes.Compare(a.Raw, b.Raw) // the same bag in another order is the same
	})
	return slices.CompactFunc(certs, (*x509.Certificate).Equal), unusable, nil
}

// dersIn returns the certificates of a bag in DER.
func dersIn(bag []byte) (all [][]byte, err error) {
	if len(bag) > maxBag {
		return nil, fmt.Errorf("there are %d bytes, %d are allowed", len(bag), maxBag)
	}
	if !bytes.Contains(bag, []byte("-----BEGIN")) {
		return fromPKCS7(unwrapped(bag))
	}
	for block, err := range pki.Blocks(bag) {
		if err != nil {
			return nil, err
		}
		found := [][]byte{block.Bytes}
		switch block.Type {
		case "CERTIFICATE":
		case "PKCS7", "PKCS #7 SIGNED DATA", "CMS":
			if found, err = fromPKCS7(block.Bytes); err != nil {
				return nil, err
			}
		default:
			return nil, errors.New("unsupported PEM block; want CERTIFICATE, PKCS7 or CMS")
		}
		if all = append(all, found...); len(all) > maxCertificates {
			return nil, errMany
		}
	}
	return all, nil
}

var (
	errMany    = fmt.Errorf("there are more than %d", maxCertificates)
	errNoPKCS7 = errors.New("it is neither PEM nor PKCS #7 in BER or base64")
)

// unwrapped returns BER, also where it came as base64 (RFC 7030, section 4.1.3).
func unwrapped(bag []byte) []byte {
	text := bytes.Join(bytes.Fields(bag), nil)
	der := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(der, text)
	if err != nil {
		return bag
	}
	return der[:n]
}

// signedDataType is the body of the object identifier 1.2.840.113549.1.7.2.
var signedDataType = []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02}

// fromPKCS7 returns the certificates of a SignedData in BER, which includes DER. The certificates
// themselves are DER.
func fromPKCS7(ber []byte) ([][]byte, error) {
	outer, rest, ok := next(ber, 0)
	if !ok || len(rest) > 0 {
		return nil, errNoPKCS7
	}
	// ContentInfo: RFC 5652, section 3.
	info, ok := outer.inside(tagSequence, 2)
	if !ok || len(info) == 0 || info[0].tag != tagOID {
		return nil, errNoPKCS7
	}
	if !bytes.Equal(info[0].body, signedDataType) {
		return nil, errors.New("the PKCS #7 is not SignedData")
	}
	content, ok := info[len(info)-1].inside(tagZero, 1)
	if !ok || len(content) == 0 {
		return nil, errNoPKCS7
	}
	return fromSignedData(content[0])
}

// fromSignedData reads RFC 5652, section 5.1, as far as needed: version, digests, content, then
// optionally certificates and revocation lists, and signers.
func fromSignedData(e element) (all [][]byte, err error) {
	parts, ok := e.inside(tagSequence, 6)
	if !ok || len(parts) < 4 || parts[0].tag != tagInteger || parts[1].tag != tagSet || parts[2].tag != tagSequence || parts[len(parts)-1].tag != tagSet {
		return nil, errNoPKCS7
	}
	if parts[3].tag != tagZero {
		return nil, nil
	}
	for rest := parts[3].body; len(rest) > 0; {
		var one element
		if one, rest, ok = next(rest, 0); !ok {
			return nil, errNoPKCS7
		}
		if one.tag != tagSequence {
			continue // an attribute certificate
		}
		if all = append(all, one.full); len(all) > maxCertificates {
			return nil, errMany
		}
	}
	return all, nil
}
