package catest

import (
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"time"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// CRL is the content of a revocation list. The zero value revokes nothing for an hour.
type CRL struct {
	// Number is the list's. Default: 0.
	Number int64
	// ThisUpdate and NextUpdate span its validity. Default: a minute ago, and in an hour.
	ThisUpdate, NextUpdate time.Time
	// Revoked are serial numbers of leaves.
	Revoked []*big.Int
}

// CRLs returns a revocation list (PEM) of each of its CAs, the root's first. Only the last, of the
// CA that signs leaves, has the revoked ones.
func (c *CA) CRLs(list CRL) [][]byte {
	if list.ThisUpdate.IsZero() {
		list.ThisUpdate = c.opts.Now().Add(-time.Minute)
	}
	if list.NextUpdate.IsZero() {
		list.NextUpdate = c.opts.Now().Add(time.Hour)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([][]byte, len(c.issuers))
	for i, issuer := range c.issuers {
		template := &x509.RevocationList{Number: big.NewInt(list.Number), ThisUpdate: list.ThisUpdate, NextUpdate: list.NextUpdate}
		if i == len(c.issuers)-1 {
			for _, serial := range list.Revoked {
				template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: serial, RevocationTime: list.ThisUpdate})
			}
		}
		all[i] = issuer.list(template)
	}
	return all
}

func (i issuer) list(template *x509.RevocationList) []byte {
	der, err := x509.CreateRevocationList(rand.Reader, template, i.cert, i.key)
	if err != nil {
		panic(err)
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		panic(err)
	}
	return pki.EncodeCRLs([]*x509.RevocationList{list})
}
