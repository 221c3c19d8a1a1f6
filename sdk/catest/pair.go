package catest

import (
	"context"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Pair signs a certificate of these names for a new ECDSA P-256 key, and returns its chain and
// key (PEM). A zero ttl is the CA's default. It panics if a name is invalid or a fault is planned.
func (c *CA) Pair(ttl time.Duration, spiffeID string, dnsNames ...string) (chain, key []byte) {
	id, err := pki.NewIdentity(spiffeID, dnsNames, nil)
	if err != nil {
		panic(err)
	}
	signer, err := pki.GenerateKey("")
	if err != nil {
		panic(err)
	}
	csr, err := pki.CreateCSR(signer, id)
	if err != nil {
		panic(err)
	}
	reply, err := c.CSRSign(context.Background(), ca.SignRequest{CSR: csr, SubjectID: spiffeID, DNSNames: dnsNames, TTL: ttl})
	if err != nil {
		panic(err)
	}
	key, err = pki.EncodeKey(signer)
	if err != nil {
		panic(err)
	}
	return reply.Chain, key
}
