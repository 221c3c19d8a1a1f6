package secret

import (
	"errors"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// WithoutKey returns the record that a [Manager] stored of a key pair without its private key, for a
// Storage that has the key elsewhere, such as in a program's file: [Record.WithKey] adds it again.
// Records of [Keep] are an error. Experimental.
func (r Record) WithoutKey() (Record, error) {
	kept, err := r.pair()
	if err != nil {
		return Record{}, err
	}
	kept.Key = nil
	r.Content = encode(kept)
	return r, nil
}

// WithKey returns a record of [Record.WithoutKey] with its private key (PEM, as [pki.ParseKey] reads
// it). It fails if that is not the key of the record's certificate; the error does not quote it.
// Experimental.
func (r Record) WithKey(key []byte) (Record, error) {
	kept, err := r.pair()
	if err != nil {
		return Record{}, err
	}
	certs, err := pki.ParseCertificates(kept.Chain)
	if err != nil {
		return Record{}, errContent
	}
	signer, err := pki.ParseKey(key)
	if err != nil {
		return Record{}, err
	}
	if !pki.SameKey(signer.Public(), certs[0].PublicKey) {
		return Record{}, errors.New("the key is not that of the certificate")
	}
	if kept.Key, err = pki.EncodeKey(signer); err != nil {
		return Record{}, err
	}
	r.Content = encode(kept)
	return r, nil
}

// pair decodes the record of a key pair.
func (r Record) pair() (keptPair, error) {
	kept, err := decodePair(r.Content)
	if err == nil && len(kept.Chain) == 0 {
		err = errContent
	}
	return kept, err
}
