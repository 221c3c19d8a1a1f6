package tlsconfig

import (
	"context"
	"crypto/tls"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// Obtain obtains a certificate for the names from an authority and returns a server's
// configuration that presents it, as [secret.Obtain] and [Server] do. The certificate is renewed
// until the caller closes the Manager, whose secrets "default" and "ROOTCA" serve further
// configurations, such as a client's. Clients are not asked for a certificate: use Server for
// that.
func Obtain(ctx context.Context, authority ca.Client, names ...string) (*tls.Config, *secret.Manager, error) {
	secrets, err := secret.Obtain(ctx, authority, names...)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := Server(Options{Source: secrets, Certificate: "default"})
	if err != nil {
		_ = secrets.Close()
		return nil, nil, err
	}
	return cfg, secrets, nil
}
