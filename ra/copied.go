package ra

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// checkCSR returns an error if the CSR asks for extensions with which a certificate could be given
// to no caller under a rule with these usages. Some authorities copy what they are asked for: their
// certificates would fail a check, which stops the rule for everybody. A CSR that leaves its usages
// to the authority passes.
func (u Usages) checkCSR(csr *x509.CertificateRequest) error {
	asked := slices.DeleteFunc(slices.Clone(csr.Extensions), func(e pkix.Extension) bool { return e.Id.Equal(oidNames) })
	if len(asked) == 0 {
		return nil
	}
	leaf, err := copied(asked)
	if err != nil {
		return about{ErrUsages, "the certificate signing request has malformed extensions"}
	}
	if err = pki.CheckUsage(leaf); err == nil {
		err = u.check(leaf)
	}
	if failed, ok := errors.AsType[*pki.CheckError](err); ok {
		return about{ErrUsages, fmt.Sprintf("CSR extensions would be rejected in the certificate: %s; remove them", failed.Detail)}
	}
	return err
}

// copied returns a certificate with these extensions, as an authority makes it that copies them.
func copied(extensions []pkix.Extension) (*x509.Certificate, error) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // its signature does not matter
	template := &x509.Certificate{SerialNumber: big.NewInt(1), ExtraExtensions: extensions}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := pki.ParseCertificates(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	if err != nil {
		return nil, err
	}
	return leaf[0], nil
}
