package folder

import (
	"fmt"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
)

// Endpoints of a cluster that a client refuses keep those of no other cluster from it.
func TestEndpointsThatAClientRefusesTakeNoOthersWithThem(t *testing.T) {
	d := newDir(t)
	var content string
	names := []string{"a", "bad", "c", "d", "e"}
	for _, name := range names {
		content += fmt.Sprintf("\"@type\": %s\ncluster_name: %s\n---\n", EndpointURL, name)
	}
	d.write("endpoints.yaml", content)
	a := dial(t, d.run(), gateway(t))
	a.requests <- &discoveryv3.DiscoveryRequest{TypeUrl: EndpointURL, ResourceNames: names, Node: &corev3.Node{Id: "envoy"}}
	held := map[string]bool{}
	for tries := 0; len(held) < len(names)-1; tries++ {
		r := a.next()
		var got []string
		for _, packed := range r.GetResources() {
			var one endpointv3.ClusterLoadAssignment
			if err := packed.UnmarshalTo(&one); err != nil {
				t.Fatal(err)
			}
			got = append(got, one.GetClusterName())
		}
		reply := &discoveryv3.DiscoveryRequest{TypeUrl: EndpointURL, ResourceNames: names, VersionInfo: r.GetVersionInfo(), ResponseNonce: r.GetNonce()}
		if slices.Contains(got, "bad") {
			reply.VersionInfo, reply.ErrorDetail = "", &rpcstatus.Status{Message: "no"}
		} else {
			for _, name := range got {
				held[name] = true
			}
		}
		a.requests <- reply
		if tries == 10 {
			t.Fatalf("after %d responses the client holds %v", tries+1, held)
		}
	}
}
