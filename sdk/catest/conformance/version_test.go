package conformance

import (
	"slices"
	"testing"

	"google.golang.org/grpc"

	"github.com/countersign-dev/countersign/sdk/provider/wire"
)

// Version 2 replaces the services of the core that change, and renames no other: PROTOCOL.md
// promises that to authors.
func TestVersion2RenamesNoAbility(t *testing.T) {
	s := grpc.NewServer()
	wire.Register(s, V2(), good()())
	var names []string
	for name := range s.GetServiceInfo() {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{
		"countersign.provider.v1.JwtSvid", "countersign.provider.v1.Provider", "countersign.provider.v1.RenewalInfo",
		"countersign.provider.v1.RevocationSource", "countersign.provider.v1.RootSource", "countersign.provider.v1.RootWatcher",
		"countersign.provider.v1.TokenExchanger", "countersign.provider.v1.WitSvid", "countersign.provider.v2.CertificateAuthority",
	}
	if !slices.Equal(names, want) {
		t.Errorf("it serves %q, want %q", names, want)
	}
}
