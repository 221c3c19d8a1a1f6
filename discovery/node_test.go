package discovery_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countersign-dev/countersign/discovery"
	"github.com/countersign-dev/countersign/sdk/authn"
)

func TestClusterIsReviewersOrAnAllowedClaim(t *testing.T) {
	type claims struct{ metadata, node, want string }
	for name, c := range map[string]struct {
		kind     authn.Kind
		clusters map[string][]string
		cases    []claims
		issuer   []string
	}{
		"by TokenReview, whatever is claimed": {
			authn.ByTokenReview, map[string][]string{"example.org": {"local", "far"}},
			[]claims{{"", "", "reviewed"}, {"far", "far", "reviewed"}, {"", "far", "reviewed"}}, []string{"far"},
		},
		"of a trust domain that may be in two": {
			authn.ByJWT, map[string][]string{"example.org": {"far", "local"}},
			[]claims{{"", "", "local"}, {"far", "", "far"}, {"", "far", "far"}, {"far", "local", "far"}, {"elsewhere", "far", ""}, {"", "elsewhere", ""}}, nil,
		},
		"of a trust domain that is elsewhere": {
			authn.ByJWT, map[string][]string{"example.org": {"far", "farther"}},
			[]claims{{"", "", "far"}, {"", "farther", "farther"}, {"", "local", ""}, {"local", "", ""}}, nil,
		},
		"of a trust domain that is not named": {
			authn.ByJWT, map[string][]string{"other.example": {"far"}},
			[]claims{{"", "", "local"}, {"", "local", "local"}, {"", "far", ""}, {"far", "", ""}}, nil,
		},
		"of an issuer that signs for one cluster of the trust domain": {
			authn.ByJWT, map[string][]string{"example.org": {"local", "far"}},
			[]claims{{"", "", "far"}, {"far", "", "far"}, {"", "far", "far"}, {"local", "", ""}, {"", "local", ""}}, []string{"far"},
		},
	} {
		inBubble(t, func(p *place, cfg *discovery.Config) {
			withTokens(c.kind)(p, cfg)
			cfg.Clusters = c.clusters
			if c.issuer != nil {
				cfg.IssuerClusters = map[string][]string{"https://issuer.example": c.issuer}
			}
		}, func(t *testing.T, p *place) {
			conn := p.dial(nil)
			defer conn.Close()
			for _, claim := range c.cases {
				pairs := []string{"authorization", "Bearer good-api"}
				if claim.metadata != "" {
					pairs = append(pairs, "clusterid", claim.metadata)
				}
				stream := open(t, conn, pairs...)
				stream.node = nodeWith(map[string]any{"CLUSTER_ID": claim.node, "NAMESPACE": "bank"})
				stream.ask(thingURL, "a")
				synctest.Wait()
				asked := p.source.callers()
				if got := asked[len(asked)-1]; got.Cluster != claim.want || got.Identity.Namespace != "shop" {
					t.Errorf("%s: claiming %q and %q leads to the cluster %q, namespace %q", name, claim.metadata, claim.node, got.Cluster, got.Identity.Namespace)
				}
				stream.hang()
				synctest.Wait()
			}
		})
	}
}

func TestNodeIsPassedToSourceAndBounded(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, 100*time.Hour, web))
		defer conn.Close()
		c := open(t, conn)
		c.node = nodeWith(map[string]any{"LABELS": map[string]any{"app": "gateway", "count": 3}, "NAMESPACE": "bank"})
		c.ask(thingURL, "a")
		c.gets("1")
		got := p.source.callers()[0].Node
		if got.ID != "node" || got.Metadata.GetFields()["NAMESPACE"].GetStringValue() != "bank" || fmt.Sprint(got.Labels) != "map[app:gateway]" {
			t.Errorf("the node is %+v", got)
		}
		c.hang()

		big := open(t, conn)
		big.node = nodeWith(map[string]any{"x": strings.Repeat("x", 64<<10)})
		big.ask(thingURL, "a")
		if said := big.ends(codes.InvalidArgument); !strings.Contains(said, "at most 65536 are allowed") {
			t.Errorf("the client gets %q", said)
		}
		none := open(t, conn)
		none.node = nil
		none.ask(thingURL, "a")
		none.ends(codes.InvalidArgument)
	})
}

func TestSecretServiceFetchesWithNodeCluster(t *testing.T) {
	inBubble(t, func(_ *place, c *discovery.Config) { c.Clusters = map[string][]string{"example.org": {"local", "far"}} }, func(t *testing.T, p *place) {
		conn := p.dial(p.root.Leaf(t, time.Hour, web))
		defer conn.Close()
		sds := secretv3.NewSecretDiscoveryServiceClient(conn)
		got, err := sds.FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{Node: nodeWith(map[string]any{"CLUSTER_ID": "far"}), ResourceNames: []string{"a"}})
		if err != nil || got.GetVersionInfo() != "1" {
			t.Errorf("got %v, %v", got, err)
		}
		if asked := p.source.callers(); asked[0].Cluster != "far" || asked[0].Node.ID != "node" {
			t.Errorf("the source was asked for %+v", asked[0])
		}
		_, err = sds.FetchSecrets(t.Context(), &discoveryv3.DiscoveryRequest{ResourceNames: []string{"a"}})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("without a node: %v", err)
		}
	})
}
