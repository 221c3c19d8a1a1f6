package secret

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// recordVersion is that of both contents below. Another one is not understood.
const recordVersion = 1

// keptPair is the content of a key pair's record.
type keptPair struct {
	Version int         `json:"version"`
	KeyType pki.KeyType `json:"key_type"`
	Key     []byte      `json:"key"`   // PEM
	Chain   []byte      `json:"chain"` // PEM
	Signer  string      `json:"signer"`
	// Issued and RenewAt were drawn once; RenewAt by the ratio and jitter of then.
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

// keptRoot is one root, and until when the record may bring it back.
type keptRoot struct {
	DER   []byte    `json:"der"`
	Until time.Time `json:"until"`
}

// encode returns the content of a record; these structs always have one.
func encode(kept any) []byte {
	content, _ := json.Marshal(kept)
	return content
}

// errContent hides what the decoder says: it may quote a key.
var errContent = errors.New("its content is not understood")

func decodePair(content []byte) (kept keptPair, err error) {
	if json.Unmarshal(content, &kept) != nil {
		return kept, errContent
	}
	return kept, checkVersion(kept.Version)
}

// decodeRoots returns the roots of a record by the time until which they count.
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
		cert, err := x509.ParseCertificate(r.DER)
		if err != nil {
			return nil, errContent
		}
		certs = append(certs, cert)
		roots = append(roots, droppedRoot{cert: cert, until: r.Until, restored: true})
	}
	_, err := pki.ParseBundle(pki.EncodeCertificates(certs)) // each a CA, and not too many
	return roots, err
}

func checkVersion(v int) error {
	if v != recordVersion {
		return fmt.Errorf("its content is of version %d; this program knows %d", v, recordVersion)
	}
	return nil
}
