package bench

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func identity() (pki.Identity, error) {
	return pki.NewIdentity("spiffe://example.org/web", []string{"web.example.org"}, nil)
}

// newParties holds a certificate in a secret.Manager, and the very same one fixed.
func newParties() (*parties, error) { return newPartiesOf(pki.ECDSAP256, pki.ECDSAP256) }

func newPartiesOf(root, leaf pki.KeyType) (*parties, error) {
	id, err := identity()
	if err != nil {
		return nil, err
	}
	p := &parties{authority: catest.NewCA(catest.Options{KeyType: root})}
	p.roots = p.authority.Bundle().Pool()
	p.held, err = secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "test", Client: p.authority}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, KeyType: leaf, TTL: 24 * time.Hour, Authorities: []string{"test"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"test"}},
		},
	})
	if err != nil {
		return nil, err
	}
	item, err := p.held.Get(context.Background(), secret.Caller{}, "default")
	if err != nil {
		return nil, err
	}
	p.cert, err = tls.X509KeyPair(item.Chain, item.Key)
	return p, err
}

func (p *parties) keyDER() []byte {
	der, err := x509.MarshalPKCS8PrivateKey(p.cert.PrivateKey)
	if err != nil {
		panic(err) // it was PKCS #8 before
	}
	return der
}

// issue makes another certificate of the same names.
func issue(authority *catest.CA) (tls.Certificate, error) {
	id, err := identity()
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := pki.GenerateKey("")
	if err != nil {
		return tls.Certificate{}, err
	}
	return sign(authority, key, id)
}

func sign(authority *catest.CA, key crypto.Signer, id pki.Identity) (tls.Certificate, error) {
	csr, err := pki.CreateCSR(key, id)
	if err != nil {
		return tls.Certificate{}, err
	}
	reply, err := authority.CSRSign(context.Background(), ca.SignRequest{CSR: csr})
	if err != nil {
		return tls.Certificate{}, err
	}
	pem, err := pki.EncodeKey(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(reply.Chain, pem)
}
