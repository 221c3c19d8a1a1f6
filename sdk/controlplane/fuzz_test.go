package controlplane_test

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"

	"github.com/countersign-dev/countersign/internal/test/secrettest"
	"github.com/countersign-dev/countersign/sdk/controlplane"
)

// Whatever a client claims to have from before, it gets the secret unless it named
// the very version, and what the server keeps for it is taken back as it was.
func FuzzInitialVersions(f *testing.F) {
	for _, version := range []string{"1", "", "refused\x00", "sent 1\x001", "\x001", "sent 9\x00", "\xff"} {
		f.Add(version, "1", "9")
	}
	f.Fuzz(func(t *testing.T, version, held, nonce string) {
		cache := newCache(t, secrettest.New(leaf("default", held+"."), roots("r")))
		brought := map[string]string{"default": version, "gone": version}
		req := &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: controlplane.TypeURL, Node: &corev3.Node{Id: "test"}, ResponseNonce: nonce,
			ResourceNamesSubscribe: []string{"default", "ROOTCA"}, InitialResourceVersions: brought,
		}
		sub := streamv3.NewDeltaSubscription(req.GetResourceNamesSubscribe(), nil, brought, true)
		first := askTwice(t, cache, req, sub)
		want := 2
		if version == held+"." {
			want = 1
		}
		if got := len(first.GetResources()); got != want {
			t.Errorf("%d secrets for who brought %q where %q is held, want %d", got, version, held+".", want)
		}
	})
}

// askTwice returns the answer to a request, and checks that asking on gets none.
func askTwice(t *testing.T, cache *controlplane.Cache, req *cachev3.DeltaRequest, sub streamv3.Subscription) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	out := make(chan cachev3.DeltaResponse, 2)
	cancel, err := cache.CreateDeltaWatch(req, sub, out)
	if err != nil {
		t.Fatal(err)
	}
	answer := <-out
	response, err := answer.GetDeltaDiscoveryResponse()
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	response.Nonce = "1"
	sub.SetReturnedResources(answer.GetReturnedResources())
	ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: req.GetTypeUrl(), Node: req.GetNode(), ResponseNonce: "1"}
	cancel, err = cache.CreateDeltaWatch(ack, sub, out)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if len(out) != 0 {
		t.Error("the same is sent again")
	}
	return response
}
