package kubeca

import (
	"context"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	"github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// kits are for a signer, asked with the token of each request, and for an issuer.
func (c *cluster) kits() map[string]conformance.Kit {
	to := func(more map[string]any) map[string]any {
		more["url"], more["root_file"] = c.URL, c.file("root.pem")
		return more
	}
	names := conformance.Names{SPIFFEID: web, DNSNames: []string{"web.example.org", "www.example.org"}, IPAddresses: []string{"192.0.2.7"}}
	refused := conformance.Names{SPIFFEID: web, DNSNames: []string{"bank.example.com"}}
	wrong := map[string]any{"signer_name": "mesh", "bundle_file": c.file("bundle.pem")}
	return map[string]conformance.Kit{
		"signer": {
			Settings:      to(map[string]any{"signer_name": "example.org/mesh", "bundle_file": c.file("bundle.pem"), "use_request_token": true}),
			WrongSettings: wrong, Identity: names, RefusedIdentity: refused, Token: ourToken, RefusedToken: stale, TokenRequired: true,
			CallTimeout: conformance.Duration(time.Minute), // on a busy machine
		},
		"issuer": {
			Settings: to(map[string]any{
				"issuer": map[string]any{"name": "mesh", "kind": "ClusterIssuer"}, "namespace": "shop", "token_file": c.file("token"),
			}),
			WrongSettings: wrong, Identity: names, RefusedIdentity: refused, AbilitiesOff: []string{"root-source"},
			CallTimeout: conformance.Duration(time.Minute), // on a busy machine
		},
	}
}

func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	t.Parallel()
	open := func(_ context.Context, s Settings) (*CA, error) { return Open(s) }
	for name, kit := range newCluster(t).kits() {
		t.Run(name, func(t *testing.T) { conformance.Run(t, kit, provider.Define("kubernetes", "1", open).Provider) })
	}
}

// kitFile is a kit as `countersign provider test` reads it.
type kitFile struct {
	conformance.Kit
	TokenFile        string `json:"token_file,omitempty"`
	RefusedTokenFile string `json:"refused_token_file,omitempty"`
}

// The binary runs as a signer alone: it decodes its settings as TestConformance does.
func TestBinaryConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole suite")
	}
	t.Parallel()
	c := newCluster(t)
	file := kitFile{Kit: c.kits()["signer"]}
	for token, path := range map[ca.Token]*string{file.Token: &file.TokenFile, file.RefusedToken: &file.RefusedTokenFile} {
		*path = c.write(t, "token-"+string([]byte(token.Reveal())[30:33]), []byte(token))
	}
	testkit.Run(t, "countersign", "provider", "test", "--quiet", testkit.Program(t, "countersign-provider-kubernetes"), "--kit", c.write(t, "kit.json", jsonOf(t, file)))
}
