package pki_test

import (
	"fmt"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// What an agent makes for a certificate, and what an authority reads of it.
func ExampleCreateCSR() {
	key, err := pki.GenerateKey(pki.ECDSAP256)
	if err != nil {
		panic(err)
	}
	id, err := pki.NewIdentity("spiffe://example.org/web", []string{"web.example.org"}, nil)
	if err != nil {
		panic(err)
	}
	pem, err := pki.CreateCSR(key, id)
	if err != nil {
		panic(err)
	}
	csr, err := pki.ParseCSR(pem)
	if err != nil {
		panic(err)
	}
	fmt.Println(csr.URIs, csr.DNSNames, pki.SameKey(csr.PublicKey, key.Public()))
	// Output: [spiffe://example.org/web] [web.example.org] true
}
