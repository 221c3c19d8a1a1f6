//go:build e2e

package real_test

import (
	"testing"

	"github.com/countersign-dev/countersign/kubernetes/signing"
	"github.com/countersign-dev/countersign/ra"
)

// policy is the registration authority's. It has no rule for namespace bank and for user mallory.
func policy(t testing.TB) *ra.Policy {
	t.Helper()
	byRequest := []string{signing.CSRDoor(signer).Name, signing.CSRDoor(byHand).Name}
	rules := []ra.Rule{
		{
			Name: "pods", Match: ra.Match{Kinds: []ra.Kind{ra.Pod}, Namespaces: []string{"shop", "shop-*"}},
			Names: ra.Names{SPIFFEID: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}", DNSNames: []string{"{pod}.{namespace}.svc"}},
		},
		{
			Name: "accounts", Match: ra.Match{Doors: byRequest, Kinds: []ra.Kind{ra.ServiceAccount}, Namespaces: []string{"shop", "shop-*"}},
			Names: ra.Names{SPIFFEID: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}"},
		},
		{
			Name: "nodes", Match: ra.Match{Doors: byRequest, Kinds: []ra.Kind{ra.Node}},
			Names: ra.Names{DNSNames: []string{"{node}.nodes.example.org"}},
		},
	}
	for i := range rules {
		rules[i].Authority, rules[i].KeyTypes = authority, []string{"ecdsa-p256"}
	}
	p, err := ra.NewPolicy(cluster, rules)
	must(t, err)
	return p
}
