package agent_test

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/token"
)

// An agent with a CA client of one's own, which serves Envoy until it is interrupted.
func ExampleRun() {
	var client ca.Client // your own, or one of pluginhost.Open
	id, err := pki.NewIdentity("spiffe://example.org/ns/shop/sa/web", nil, nil)
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err = agent.Run(ctx, agent.Config{
		Authorities: []secret.Authority{{
			Name: "mesh", Client: client, Token: token.File{Path: "/var/run/secrets/tokens/istio-token"}.Token,
		}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, TTL: 24 * time.Hour, Authorities: []string{"mesh"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"mesh"}},
		},
		Socket: sds.Config{Path: "/run/countersign/socket"},
		Log:    slog.Default(),
	})
	if err != nil {
		panic(err)
	}
}
