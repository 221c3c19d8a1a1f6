package ratest

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Unlimited is what an authority signs whose limits a test is not about.
var Unlimited = ra.Limits{Rate: 1000, Burst: 1000}

// Policy is one of the cluster home.
func Policy(tb testing.TB, rules ...ra.Rule) *ra.Policy {
	tb.Helper()
	p, err := ra.NewPolicy("home", rules)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// Engine is [ra.New]. The test closes it.
func Engine(tb testing.TB, conf ra.Config) *ra.Engine {
	tb.Helper()
	e, err := ra.New(conf)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

var keys sync.Map // pki.KeyType to crypto.Signer

// Key is the one key of a type.
func Key(kind pki.KeyType) crypto.Signer {
	if key, made := keys.Load(kind); made {
		return key.(crypto.Signer)
	}
	key, err := pki.GenerateKey(kind)
	if err != nil {
		panic(err)
	}
	first, _ := keys.LoadOrStore(kind, key)
	return first.(crypto.Signer)
}

// CSR is one (PEM) of the key of that type.
func CSR(kind pki.KeyType, template *x509.CertificateRequest) []byte {
	return CSRWith(Key(kind), template)
}

// CSRWith is one (PEM) of that key.
func CSRWith(key crypto.Signer, template *x509.CertificateRequest) []byte {
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
