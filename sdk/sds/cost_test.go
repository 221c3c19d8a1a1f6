package sds

import (
	"runtime"
	"testing"
	"weak"

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

// The body of a secret is a second copy of it, which is kept only while a stream sends it.
func TestBodyIsKeptOnlyWhileInUse(t *testing.T) {
	var secrets secret.Map
	item := &secret.Item{Kind: secret.TrustBundle, Version: "1", Roots: []byte("roots"), RootFingerprints: []string{"a"}}
	secrets.Set("default", item)
	s := &source{Source: &secrets}
	peek := func() *xds.Resource {
		resource, err := s.Peek(secret.Caller{}, "default")
		if err != nil {
			t.Fatal(err)
		}
		return resource
	}
	use := func() (kept *xds.Resource, content string, made weak.Pointer[xds.Resource]) {
		resource := peek()
		if peek() != resource {
			t.Error("a body in use was made twice")
		}
		return resource.Kept, string(resource.Body.GetValue()), weak.Make(resource)
	}
	kept, content, first := use()
	if kept.Body != nil || kept.Name != "default" || kept.Version != "1" || len(kept.Provides) != 1 {
		t.Errorf("streams keep %+v", kept)
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the body is kept while no stream sends it")
	}
	if again := peek(); again.Kept != kept || string(again.Body.GetValue()) != content {
		t.Error("the body that was made again differs")
	}
	if other, err := resourceAs(item, "Default"); err != nil || other.Kept.Body != nil || other.Kept.Name != "Default" {
		t.Errorf("under another name streams keep %+v, %v", other, err)
	}
	runtime.KeepAlive(item)
}
