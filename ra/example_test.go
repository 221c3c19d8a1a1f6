package ra_test

import (
	"fmt"

	"github.com/countersign-dev/countersign/ra"
)

// A policy is tried without asking any authority.
func ExamplePolicy_Try() {
	policy, err := ra.NewPolicy("home", []ra.Rule{{
		Name: "gateways", Authority: "public", Match: ra.Match{Namespaces: []string{"ingress-*"}},
		Names: ra.Names{DNSNames: []string{"*.shop.example.com"}},
	}, {
		Name: "pods", Authority: "internal", Match: ra.Match{Kinds: []ra.Kind{ra.Pod}},
		Names: ra.Names{
			SPIFFEID: "spiffe://example.org/ns/{namespace}/sa/{serviceAccount}",
			DNSNames: []string{"{pod}.{namespace}.pod.example.org"},
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := ra.Subject{Kind: ra.Pod, Cluster: "home", Namespace: "shop", ServiceAccount: "web", Pod: "web-0", PodUID: "1"}
	fmt.Print(policy.Try(pod, "").Explain())
	pod.Pod = "payments.prod"
	fmt.Print(policy.Try(pod, "").Denied)
	// Output:
	// rule "gateways" does not match: it is for the namespace ["ingress-*"], not "shop"
	// rule "pods" matches
	// granted: spiffe://example.org/ns/shop/sa/web, web-0.shop.pod.example.org
	// by authority "internal", for 24h0m0s at most
	// the pod "payments.prod" cannot stand in "{pod}.{namespace}.pod.example.org": a DNS label has lower-case letters, digits and '-' inside
}
