package secret

import (
	"context"
	"crypto"

	"github.com/countersign-dev/countersign/sdk/pki"
)

// KeySource makes private keys, for example in a device that they cannot leave. It is safe
// for concurrent use.
type KeySource interface {
	// NewKey makes a key of type t for the secret name. The key is in use until its
	// certificate is replaced, and beyond that by callers that still hold the
	// certificate. It must be safe for concurrent use and able to sign for TLS 1.3, so an
	// RSA key must support PSS. If crypto/x509 does not know the key's Go type, it counts
	// as not exportable; see [Item.PrivateKey]. An error is one of package ca, or is
	// retried as [ca.Unknown].
	NewKey(ctx context.Context, name string, t pki.KeyType) (crypto.Signer, error)
}
