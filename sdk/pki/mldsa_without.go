//go:build !go1.27 || fips140v1.0

package pki

import (
	"crypto"
	"crypto/fips140"
	"fmt"
	"runtime"
	"strings"
)

// withoutMLDSA returns why this build has no ML-DSA.
func withoutMLDSA() error {
	if module := fips140.Version(); strings.HasPrefix(module, "v1.0.") {
		return fmt.Errorf("this program was built with the FIPS 140-3 module %s, which has no ML-DSA; the module has it from v1.26.0", module)
	}
	return fmt.Errorf("this program was built with %s, which has no ML-DSA; Go has it from 1.27", runtime.Version())
}

func generateMLDSA(t KeyType) (crypto.Signer, error) {
	_, err := ParseKeyType(string(t))
	return nil, err
}

func mldsaTypeOf(crypto.PublicKey) KeyType { return "" }
