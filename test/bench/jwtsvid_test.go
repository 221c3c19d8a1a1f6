package bench

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	spiffeapi "github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/providers/file/fileca"
	"github.com/countersign-dev/countersign/sdk/agent"
	ourjwt "github.com/countersign-dev/countersign/sdk/jwtsvid"
	"github.com/countersign-dev/countersign/sdk/pki"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/workloadapi"
)

// jwtServed is an agent with a CA of files, both in this process.
func jwtServed(b *testing.B) *spiffeapi.Client {
	b.Helper()
	dir, silent := proctest.Folder(b), slog.New(slog.DiscardHandler)
	ca, err := fileca.Open(b.Context(), fileca.Settings{Dir: filepath.Join(dir, "ca"), SelfSigned: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ca.Close() })
	jwts, err := ourjwt.New(ourjwt.Config{Signer: ca, Audiences: []string{"*"}, Log: silent})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = jwts.Close() })
	id, err := pki.NewIdentity("spiffe://example.org/web", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Authorities: []secret.Authority{{Name: "file", Client: ca}},
		Secrets: []secret.Spec{
			{Name: "default", Kind: secret.KeyPair, Identity: id, Authorities: []string{"file"}},
			{Name: "ROOTCA", Kind: secret.TrustBundle, Authorities: []string{"file"}},
		},
		Socket:      sds.Config{Path: filepath.Join(dir, "sds")},
		WorkloadAPI: workloadapi.Config{Path: filepath.Join(dir, "spiffe"), Offer: workloadapi.Offer{JWT: jwts}}, Log: silent,
	})
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = a.Run(b.Context()) }() // until the end of the benchmark
	b.Cleanup(func() { _ = a.Close() })
	client, err := spiffeapi.New(b.Context(), spiffeapi.WithAddr("unix://"+filepath.Join(dir, "spiffe")))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	return client
}

// BenchmarkJWTSVID measures FetchJWTSVID of go-spiffe over the socket: the token that is held, and
// one that is signed and verified for each call; and go-spiffe's own verification of a token.
func BenchmarkJWTSVID(b *testing.B) {
	client := jwtServed(b)
	held, err := client.FetchJWTSVID(b.Context(), jwtsvid.Params{Audience: "held"})
	if err != nil {
		b.Fatal(err)
	}
	bundles, err := client.FetchJWTBundles(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	fetch := func(audience func() string) func(*testing.B) {
		return func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := client.FetchJWTSVID(b.Context(), jwtsvid.Params{Audience: audience()}); err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
	b.Run("held", fetch(func() string { return "held" }))
	b.Run("signed", fetch(func() string { return fmt.Sprint("new-", n.Add(1)) }))
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if _, err := jwtsvid.ParseAndValidate(held.Marshal(), bundles, []string{"held"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
