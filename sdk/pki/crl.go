package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/text"
)

// Limits of one input with revocation lists. A list takes 40 bytes for each certificate, so
// that this is room for some 50,000 of them.
const (
	MaxCRLBytes = 3 << 20 // as PEM or DER
	MaxCRLs     = 100
)

const crlBlock = "X509 CRL"

// ParseCRLs parses certificate revocation lists (RFC 5280, section 5): PEM blocks "X509 CRL", or one
// list in DER. Blocks "CERTIFICATE" among them are CAs that signed a list and are not roots; they
// are not verified yet. Text between blocks is ignored.
//
// It checks no signature and no time; see [CRL]. Delta lists and lists of only some of a CA's
// certificates are refused: a program that reads one as a whole list accepts what is revoked elsewhere.
func ParseCRLs(content []byte) (lists []*x509.RevocationList, issuers []*x509.Certificate, err error) {
	if len(content) > MaxCRLBytes {
		return nil, nil, fmt.Errorf("it has %d bytes of revocation lists, %d are allowed", len(content), MaxCRLBytes)
	}
	n := 0
	for block, err := range Blocks(content) {
		if n++; n > 2*MaxCRLs {
			return nil, nil, fmt.Errorf("it holds more than %d PEM blocks", 2*MaxCRLs)
		}
		if err != nil {
			return nil, nil, err
		}
		if err := takeBlock(block, &lists, &issuers); err != nil {
			return nil, nil, fmt.Errorf("PEM block %d %w", n, err)
		}
	}
	if n == 0 {
		list, err := parseCRL(content)
		if err != nil {
			return nil, nil, fmt.Errorf("it is neither PEM nor a revocation list in DER: it %w", err)
		}
		return []*x509.RevocationList{list}, nil, nil
	}
	if len(lists) == 0 {
		return nil, nil, fmt.Errorf("it holds no PEM block %q", crlBlock)
	}
	return lists, issuers, nil
}

func takeBlock(block *pem.Block, lists *[]*x509.RevocationList, issuers *[]*x509.Certificate) error {
	switch block.Type {
	case crlBlock:
		if len(*lists) == MaxCRLs {
			return fmt.Errorf("is one list more than the %d that are allowed", MaxCRLs)
		}
		list, err := parseCRL(block.Bytes)
		if err == nil {
			*lists = append(*lists, list)
		}
		return err
	case "CERTIFICATE":
		cert, err := ParseCertificate(block.Bytes)
		if err == nil {
			*issuers = append(*issuers, cert)
		}
		return err
	}
	return fmt.Errorf("is %.64q; write %q, and CERTIFICATE for intermediate CAs", block.Type, crlBlock)
}

// Extensions of lists that are not whole (RFC 5280, sections 5.2.4 and 5.2.5).
var (
	deltaIndicator    = asn1.ObjectIdentifier{2, 5, 29, 27}
	distributionPoint = asn1.ObjectIdentifier{2, 5, 29, 28}
)

func parseCRL(der []byte) (*x509.RevocationList, error) {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, crlRefusal(der, err)
	}
	for _, extension := range list.Extensions {
		switch {
		case extension.Id.Equal(deltaIndicator):
			return nil, errors.New("is a delta list; have the CA write complete ones")
		case extension.Critical && extension.Id.Equal(distributionPoint):
			return nil, errors.New("is a list of only some of its CA's certificates (issuing distribution point); have the CA write complete ones")
		case extension.Critical:
			return nil, fmt.Errorf("has a critical extension that is not known, %s", extension.Id)
		}
	}
	if list.NextUpdate.IsZero() || !list.NextUpdate.After(list.ThisUpdate) {
		return nil, errors.New("has no nextUpdate, so it is unknown whether it is current")
	}
	return list, nil
}

// crlRefusal returns why crypto/x509 refuses a list.
func crlRefusal(der []byte, err error) error {
	var outline struct {
		TBS struct {
			Version   asn1.RawValue // an INTEGER, from version 2 on
			Algorithm asn1.RawValue
		}
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}
	rest, malformed := asn1.Unmarshal(der, &outline)
	switch {
	case malformed != nil || len(rest) > 0:
		return errors.New("is not a valid revocation list")
	case outline.TBS.Version.Tag != asn1.TagInteger:
		return errors.New("is of version 1, which has no extensions: set crl_extensions in openssl.cnf, or have the CA write version 2")
	}
	return fmt.Errorf("is not accepted by Go's crypto/x509: %s", text.Clean(strings.TrimPrefix(err.Error(), "x509: ")))
}

// EncodeCRLs returns the lists as PEM, in the given order.
func EncodeCRLs(lists []*x509.RevocationList) []byte {
	var out bytes.Buffer
	for _, list := range lists {
		// Writing to a bytes.Buffer does not fail.
		_ = pem.Encode(&out, &pem.Block{Type: crlBlock, Bytes: list.Raw})
	}
	return out.Bytes()
}

// SignedCRL reports whether issuer, a CA certificate that may sign revocation lists, signed
// the list.
func SignedCRL(list *x509.RevocationList, issuer *x509.Certificate) bool {
	if !bytes.Equal(list.RawIssuer, issuer.RawSubject) {
		return false
	}
	if len(list.AuthorityKeyId) > 0 && len(issuer.SubjectKeyId) > 0 && !bytes.Equal(list.AuthorityKeyId, issuer.SubjectKeyId) {
		return false // signed by another key of that CA: cheaper than to find out by the signature
	}
	return list.CheckSignatureFrom(issuer) == nil
}

// LaterCRL reports whether list replaces other, a list of the same CA: by its number, which a CA
// only ever raises, else by its time.
func LaterCRL(list, other *x509.RevocationList) bool {
	if by := numberOf(list).Cmp(numberOf(other)); by != 0 {
		return by > 0
	}
	return list.ThisUpdate.After(other.ThisUpdate)
}

// numberOf returns the CRL number, or -1 for a list without one.
func numberOf(list *x509.RevocationList) *big.Int {
	if list.Number == nil {
		return big.NewInt(-1)
	}
	return list.Number
}

// CRLCurrent reports whether the list is valid at now: issued, and not yet due for the next.
func CRLCurrent(list *x509.RevocationList, now time.Time) bool {
	return !now.Before(list.ThisUpdate) && !now.After(list.NextUpdate)
}
