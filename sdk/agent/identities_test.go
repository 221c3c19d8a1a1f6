package agent_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/countersign-dev/countersign/sdk/agent"
	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/identities"
	"github.com/countersign-dev/countersign/sdk/sds"
	"github.com/countersign-dev/countersign/sdk/secret"
)

func TestMultiIdentityAgentServesEachStreamItsOwn(t *testing.T) {
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.Secrets = cfg.Secrets[1:]
	cfg.Identities = &identities.Config{
		Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour},
		Identify: identities.Identify{Claimed: func(token ca.Token) (identities.Claim, error) {
			return identities.Claim{SPIFFEID: "spiffe://example.org/" + token.Reveal()}, nil
		}},
	}
	a := run(t, cfg)
	seen := map[string]bool{}
	for _, token := range []string{"web", "db", "web"} {
		answer := fetchAs(t, cfg.Socket.Path, token, "default", "ROOTCA", "spiffe://example.org/web")
		if len(answer.Resources) != 2 {
			t.Fatalf("got %d secrets", len(answer.Resources))
		}
		seen[string(answer.Resources[0].GetValue())+string(answer.Resources[1].GetValue())] = true
	}
	if len(seen) != 2 {
		t.Errorf("two identities have %d different secrets", len(seen))
	}
	if n, ok := a.Identities(); !ok || n.Identities != 2 || n.Rotations != 2 {
		t.Errorf("counts: %+v", n)
	}
	if err := a.Reload(config(t, catest.NewCA(catest.Options{})).Secrets, cfg.Authorities); err == nil || !strings.Contains(err.Error(), "each stream has its own") {
		t.Errorf("a key pair for all was taken over: %v", err)
	}
	if err := a.Reload(cfg.Secrets, cfg.Authorities); err != nil {
		t.Error(err)
	}
	fetchAs(t, cfg.Socket.Path, "third", "default")
}

func TestMultiIdentityAgentRefusesSharedSecrets(t *testing.T) {
	for words, change := range map[string]func(*agent.Config){
		"each stream has its own": func(*agent.Config) {},
		"all callers would share": func(c *agent.Config) { c.Secrets = c.Secrets[1:]; c.Sources = []secret.Source{secret.First()} },
		"names 0 authorities":     func(c *agent.Config) { c.Secrets = c.Secrets[1:] },
	} {
		cfg := config(t, catest.NewCA(catest.Options{}))
		cfg.Identities = &identities.Config{}
		change(&cfg)
		if _, err := agent.New(cfg); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %q", err, words)
		}
		if _, err := os.Lstat(cfg.Socket.Path); err == nil {
			t.Error("the socket is still there")
		}
	}
}

// fetchAs fetches with a bearer token, or without one.
func fetchAs(t *testing.T, socket, token string, names ...string) *discoveryv3.DiscoveryResponse {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	answer, err := secretv3.NewSecretDiscoveryServiceClient(conn).FetchSecrets(ctx,
		&discoveryv3.DiscoveryRequest{TypeUrl: sds.TypeURL, ResourceNames: names}, grpc.WaitForReady(true))
	must(t, err)
	return answer
}

// SPIRE's names are those of the stream's own identity, in whichever trust domain that is.
func TestMultiIdentityAgentHasSPIRENamesForEachStream(t *testing.T) {
	cfg := config(t, catest.NewCA(catest.Options{}))
	cfg.Secrets = append(cfg.Secrets[1:], secret.Spec{Name: "far", Kind: secret.TrustBundle, Authorities: []string{"test"}})
	cfg.Socket.SPIRE = &sds.SPIRE{
		Identities: []sds.SPIREIdentity{{Certificate: "default", Roots: "ROOTCA"}}, Federated: map[string]string{"far.example": "far"},
	}
	cfg.Identities = &identities.Config{
		Certificate: secret.Spec{Authorities: []string{"test"}, TTL: time.Hour}, Bundles: []string{"ROOTCA", "far"},
		Identify: identities.Identify{Claimed: func(token ca.Token) (identities.Claim, error) {
			return identities.Claim{SPIFFEID: "spiffe://" + token.Reveal()}, nil
		}},
	}
	run(t, cfg)
	for own, other := range map[string]string{"example.org/web": "example.com/db", "example.com/db": "example.org/web"} {
		domain, _, _ := strings.Cut(own, "/")
		foreign, _, _ := strings.Cut(other, "/")
		got := secretsAs(t, cfg.Socket.Path, own, "default", "spiffe://"+own, "spiffe://"+other, "spiffe://"+domain, "spiffe://"+foreign, "spiffe://far.example", "ALL")
		want := []string{"ALL", "default", "spiffe://" + domain, "spiffe://" + own, "spiffe://far.example"}
		if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) {
			t.Errorf("%s gets %v, want %v", own, names, want)
		}
		if !proto.Equal(got["default"].GetTlsCertificate(), got["spiffe://"+own].GetTlsCertificate()) {
			t.Errorf("%s has another certificate by its SPIFFE ID", own)
		}
		all := slices.Sorted(maps.Keys(secretsAs(t, cfg.Socket.Path, own))) // names nothing
		if want = []string{"spiffe://" + domain, "spiffe://" + own, "spiffe://far.example"}; !slices.Equal(all, want) {
			t.Errorf("%s gets %v, want %v", own, all, want)
		}
	}
}

// secretsAs is fetchAs with the secrets by name.
func secretsAs(t *testing.T, socket, token string, names ...string) map[string]*tlsv3.Secret {
	t.Helper()
	all := map[string]*tlsv3.Secret{}
	for _, resource := range fetchAs(t, socket, token, names...).GetResources() {
		var s tlsv3.Secret
		must(t, resource.UnmarshalTo(&s))
		all[s.GetName()] = &s
	}
	return all
}
