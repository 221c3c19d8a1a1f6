//go:build e2e && istio && linux

package program

import (
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
)

// accepting has Envoy accept peers of both trust domains, as istiod has it do with trustDomainAliases.
func accepting(with starter) starter {
	return func(s *sidecar, t *testing.T, token string, ca caOf, account string) string {
		s.peers = []string{"spiffe://cluster.local/ns/shop/sa/", "spiffe://new.example/ns/shop/sa/"}
		return with(s, t, token, ca, account)
	}
}

// inDomain demands the ID of a service account in a trust domain.
func inDomain(domain, account string) func(*x509.Certificate, []*x509.Certificate) bool {
	return func(leaf *x509.Certificate, _ []*x509.Certificate) bool {
		return len(leaf.URIs) == 1 && leaf.URIs[0].String() == "spiffe://"+domain+"/ns/shop/sa/"+account
	}
}

// A mesh moves to another trust domain in the steps of docs/istio.md. Its pods have Istio's agent or ours, are
// restarted one after the other, and talk to each other at each step.
func TestRealIstioMeshMovesToAnotherTrustDomain(t *testing.T) {
	t.Parallel()
	home, dir, b := newRealm(t, "home"), filepath.Join(proctest.Folder(t), "ca"), newBalancer(t)
	r := serveEnvoys(t, home, dir, forEnvoys)
	b.lead(t, r)
	mount := filepath.Join(proctest.Folder(t), "root-cert.pem")
	write(t, mount, read(t, filepath.Join(dir, "ca-cert.pem")))
	ca, f := caOf{b.address(), mount}, &traffic{}
	start := func(agent func(...string) starter, domain, account, pod string) *sidecar {
		s := startSidecarWith(t, accepting(agent("TRUST_DOMAIN="+domain)), home, ca, account, pod)
		s.awaitLeaf(t, r, "its name in "+domain, inDomain(domain, account))
		return s
	}
	ours := func(more ...string) starter {
		return func(s *sidecar, t *testing.T, token string, ca caOf, account string) string {
			s.env = more
			return s.startAgent(t, token, ca, account)
		}
	}
	before := []*sidecar{start(istioAgent, "cluster.local", "web", "web-0"), start(ours, "cluster.local", "api", "api-0")}
	f.between(t, before...)

	// The rule grants both. Who has the former name keeps it.
	moving := strings.NewReplacer("dir: CA", "dir: "+dir, `"spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}`,
		`"spiffe://new.example/ns/{namespace}/sa/{serviceAccount}", requested: ["spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"]}`).Replace(forEnvoys)
	r.reload(t, moving)
	awaitEachRenewal(t, r, before)
	for i, account := range []string{"web", "api"} {
		before[i].awaitLeaf(t, r, "its former name", inDomain("cluster.local", account))
	}

	// The pods move, one by one.
	web := start(istioAgent, "new.example", "web", "web-1")
	f.between(t, append(before, web)...)
	f.flow(t, r, 20)
	api := start(ours, "new.example", "api", "api-1")
	f.between(t, append(before, web, api)...)
	f.flow(t, r, 40)

	// The former pods are gone, and the former name goes.
	f.between(t, web, api)
	for _, s := range before {
		s.envoy.Kill()
		s.agent.Kill()
	}
	r.reload(t, strings.NewReplacer("dir: CA", "dir: "+dir, "cluster.local/ns", "new.example/ns").Replace(forEnvoys))
	awaitEachRenewal(t, r, []*sidecar{web, api})
	f.flow(t, r, 20)
	f.stop(t)
	if log := read(t, filepath.Join(r.dir, "audit.log")); strings.Contains(log, `"discarded"`) || strings.Contains(log, `"refused"`) {
		t.Errorf("the audit log has refusals:\n%s", log)
	}
}
