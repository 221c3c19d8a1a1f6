package secret

import (
	"context"
	"crypto"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// KeySource makes private keys, such as in a device that they do not leave. It may
// be called by several goroutines at once.
type KeySource interface {
	// NewKey makes a key of that type for the secret of that name, which is used until
	// its certificate is replaced and by nobody who has that certificate afterwards. The
	// key must be safe for concurrent use and sign for TLS 1.3: RSA with PSS, too. One
	// whose type package crypto/x509 does not know is taken for one that cannot be
	// exported; see [Item.PrivateKey]. An error is one of package ca, or is retried
	// like one that is [ca.Unknown].
	NewKey(ctx context.Context, name string, t pki.KeyType) (crypto.Signer, error)
}
