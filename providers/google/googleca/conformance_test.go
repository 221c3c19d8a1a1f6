package googleca

import (
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/sdk/ca"
	"github.com/countersign-dev/countersign/sdk/catest/conformance"
	sdk "github.com/countersign-dev/countersign/sdk/provider"
	"github.com/countersign-dev/countersign/sdk/provider/testkit"
)

// kit is for a pool that is asked with the token of each request, and has tokens
// exchanged.
func kit(t *testing.T) conformance.Kit {
	t.Helper()
	server, tokens := start(t), startTokens(t)
	settings, exchange := server.socket(t), tokens.settings().Exchange
	return conformance.Kit{
		Settings: map[string]any{
			"ca_pool": settings.CAPool, "endpoint": settings.Endpoint,
			"root_file": fileOf(t, slices.Concat(read(t, server.root), read(t, tokens.root))),
			"exchange":  map[string]any{"audience": exchange.Audience, "sts_url": exchange.STSURL, "allow_other_hosts": true},
		},
		WrongSettings: map[string]any{"ca_pool": "mesh"},
		Identity:      conformance.Names{SPIFFEID: webID, DNSNames: []string{"web.shop.svc", "www.shop.svc"}, IPAddresses: []string{"192.0.2.7"}},
		Token:         theToken,
		RefusedToken:  staleToken,
		TokenRequired: true,
		CallTimeout:   conformance.Duration(time.Minute), // on a busy machine
		Exchange:      ca.TokenRequest{SubjectToken: theToken}, RefusedSubjectToken: staleToken,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a whole suite")
	}
	conformance.Run(t, kit(t), sdk.Define("google", "1", Open).Provider)
}

// kitFile is a kit as `countersign provider test` reads it.
type kitFile struct {
	conformance.Kit
	TokenFile               string            `json:"token_file"`
	RefusedTokenFile        string            `json:"refused_token_file"`
	Exchange                map[string]string `json:"exchange"`
	RefusedSubjectTokenFile string            `json:"refused_subject_token_file"`
}

func TestBinaryConformance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a whole suite")
	}
	taken, stale := fileOf(t, []byte(theToken)), fileOf(t, []byte(staleToken))
	file := fileOf(t, inJSON(t, kitFile{kit(t), taken, stale, map[string]string{"subject_token_file": taken}, stale}))
	testkit.Run(t, "countersign", "provider", "test", "--quiet", testkit.Program(t, "countersign-provider-google"), "--kit", file)
}

// Mesh CA returns its roots only in replies, and certifies the names of a CSR.
func TestMeshCAConformanceWithoutRoots(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a whole suite")
	}
	settings := startMesh(t).settings
	kit := conformance.Kit{
		Settings:      map[string]any{"protocol": MeshCA, "endpoint": settings.Endpoint, "root_file": settings.RootFile, "location": settings.Location},
		WrongSettings: map[string]any{"protocol": MeshCA},
		Identity:      conformance.Names{SPIFFEID: webID},
		TokenRequired: true,
		CallTimeout:   conformance.Duration(time.Minute), // on a busy machine
		AbilitiesOff:  []string{"root-source", "root-watcher", "names-from-request"},
	}
	conformance.RunSubject(t, kit, conformance.OverWire(sdk.Define("google", "1", Open).Provider), conformance.Checks())
}
