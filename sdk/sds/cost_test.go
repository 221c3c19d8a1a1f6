package sds

import (
	"testing"

	"github.com/countersign-dev/countersign/sdk/secret"
	"github.com/countersign-dev/countersign/sdk/xds"
)

// A stream that uses none of SPIRE's names costs what it does without them.
func TestSPIRENamesCostOtherNamesNothing(t *testing.T) {
	var secrets secret.Map
	secrets.Set("default", &secret.Item{Kind: secret.TrustBundle, Version: "1"})
	plain := &source{Source: &secrets}
	both := newSPIRE(SPIRE{Identities: []SPIREIdentity{{Certificate: "default"}}}, plain)
	allocations := func(on xds.Source[secret.Caller]) float64 {
		return testing.AllocsPerRun(100, func() {
			stop, err := on.Watch(secret.Caller{}, "default", func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			stop()
		})
	}
	if got, want := allocations(both), allocations(plain); got > want {
		t.Errorf("a watch allocates %v times, without SPIRE's names %v times", got, want)
	}
}
