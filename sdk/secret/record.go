package secret

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// recordVersion is the version of both contents below. Any other is rejected.
const recordVersion = 1

// keptPair is the content of a key pair's record.
type keptPair struct {
	Version int         `json:"version"`
	KeyType pki.KeyType `json:"key_type"`
	Key     []byte      `json:"key"`   // PEM
	Chain   []byte      `json:"chain"` // PEM
	Signer  string      `json:"signer"`
	Facts   ca.Facts    `json:"facts,omitzero"` // of the provider that signed
	// Issued and RenewAt were set once; RenewAt with this Ratio and Jitter.
	Issued  time.Time `json:"issued"`
	RenewAt time.Time `json:"renew_at"`
	Ratio   float64   `json:"ratio"`
	Jitter  float64   `json:"jitter"`
}

// keptRoots is the content of an authority's record.
type keptRoots struct {
	Version int        `json:"version"`
	Roots   []keptRoot `json:"roots"`
}

// keptRoot is one root and the time until which the record may restore it.
type keptRoot struct {
	DER   []byte    `json:"der"`
	Until time.Time `json:"until"`
}

// encode returns the content of a record; marshaling these structs cannot fail.
func encode(kept any) []byte {
	content, _ := json.Marshal(kept)
	return content
}

// errContent replaces the decoder's error, which may quote a key.
var errContent = errors.New("its content is not understood")

func decodePair(content []byte) (kept keptPair, err error) {
	if json.Unmarshal(content, &kept) != nil {
		return kept, errContent
	}
	return kept, checkVersion(kept.Version)
}

// decodeRoots returns the roots of a record, each with its end.
func decodeRoots(content []byte) ([]droppedRoot, error) {
	var kept keptRoots
	if json.Unmarshal(content, &kept) != nil {
		return nil, errContent
	}
	if err := checkVersion(kept.Version); err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	roots := make([]droppedRoot, 0, len(kept.Roots))
	for _, r := range kept.Roots {
		cert, err := pki.ParseCertificate(r.DER)
		if err != nil {
			return nil, errContent
		}
		certs = append(certs, cert)
		roots = append(roots, droppedRoot{cert: cert, until: r.Until, restored: true})
	}
	_, err := pki.ParseBundle(pki.EncodeCertificates(certs)) // each is a CA, and there are not too many
	return roots, err
}

func checkVersion(v int) error {
	if v != recordVersion {
		return fmt.Errorf("its content is of version %d; this program supports %d", v, recordVersion)
	}
	return nil
}
