package secret_test

import (
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/secret"
)

// A certificate that is obtained and kept fresh, for a program of one's own.
func Example() {
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	if err != nil {
		panic(err)
	}
	secrets, err := secret.New(secret.Config{
		Authorities: []secret.Authority{{Name: "memory", Client: catest.NewCA(catest.Options{})}}, // any ca.Client
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: time.Hour, Authorities: []string{"memory"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"memory"}},
		},
	})
	if err != nil {
		panic(err)
	}
	defer secrets.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	item, err := secrets.Get(ctx, secret.Caller{}, "default")
	if err != nil {
		panic(err)
	}
	fmt.Println(item.Identity, "for", item.NotAfter.Sub(item.Issued).Round(time.Hour))
	// Output: spiffe://example.org/web for 1h0m0s
}
