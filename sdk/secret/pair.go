package secret

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/internal/version"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// maxChain is the maximum number of certificates in a chain, as in package pki.
const maxChain = 10

// NewKeyPair returns the item of a key pair that the program has from elsewhere, such as a
// database. authority names that place in logs and status. chain is PEM, leaf first, 10
// certificates at most; roots at its end are left out. key is PEM as [pki.ParseKey] reads it,
// without a passphrase, and must be the key of the leaf. Whether the certificate is trusted or
// valid now is not checked. An error never quotes the key.
func NewKeyPair(name, authority string, chain, key []byte) (*Item, error) {
	certs, err := pki.ParseCertificates(chain)
	if err != nil {
		return nil, fmt.Errorf("failed to read the chain: %w", err)
	}
	if len(certs) > maxChain {
		return nil, fmt.Errorf("invalid chain: it has %d certificates, %d are allowed in a chain", len(certs), maxChain)
	}
	for len(certs) > 1 && pki.SelfSigned(certs[len(certs)-1]) {
		certs = certs[:len(certs)-1] // a verifier either has the root already or must not trust it
	}
	leaf := certs[0]
	signer, err := pki.ParseKey(key)
	if err != nil {
		return nil, fmt.Errorf("failed to read the key: %w", err)
	}
	if !pki.SameKey(signer.Public(), leaf.PublicKey) {
		return nil, errors.New("invalid key: it is not the key of the first certificate in the chain")
	}
	encoded, err := pki.EncodeKey(signer)
	if err != nil {
		return nil, err
	}
	identity, _ := pki.IdentityOf(leaf) // its owner chose the names, which need not fit one
	whole := pki.EncodeCertificates(certs)
	return &Item{
		Name: name, Kind: KeyPair, Version: version.Of(whole), Chain: whole, Key: encoded,
		Identity: identity, Serial: leaf.SerialNumber.Text(16), Fingerprint: pki.Fingerprint(leaf),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, Authority: authority,
	}, nil
}
