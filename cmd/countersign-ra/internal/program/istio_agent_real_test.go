//go:build e2e && istio && linux

package program

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/ra/istioca"
)

// istioAgent starts Istio's own agent, with further variables.
func istioAgent(more ...string) starter {
	return func(s *sidecar, t *testing.T, token string, ca caOf, account string) (socket string) {
		t.Helper()
		dir := proctest.Folder(t)
		s.certs = filepath.Join(dir, "certs")
		run := filepath.Join(dir, "var", "run", "secrets")
		for _, folder := range []string{s.certs, filepath.Join(run, "tokens")} {
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		s.token = filepath.Join(run, "tokens", "istio-token")
		write(t, s.token, token)
		s.start = func() {
			cmd := exec.Command(programs.Foreign(t, "COUNTERSIGN_ISTIO"), "agent")
			cmd.Dir = dir
			cmd.Env = append(proctest.Environ(dir),
				`PROXY_CONFIG={"discoveryAddress": "`+ca.address+`"}`, "ISTIOD_SAN="+caAddress, "CA_ROOT_CA="+ca.roots, "XDS_ROOT_CA="+ca.roots,
				"CLOUD_PLATFORM=none", "ISTIO_META_CLUSTER_ID=home", "OUTPUT_CERTS="+s.certs,
				"TRUST_DOMAIN=cluster.local", "POD_NAMESPACE=shop", "SERVICE_ACCOUNT="+account, "SECRET_TTL=30s", "SECRET_GRACE_PERIOD_RATIO=0.9",
			)
			cmd.Env = append(cmd.Env, more...)
			s.runAgent(t, cmd)
		}
		s.start()
		return filepath.Join(run, "workload-spiffe-uds", "socket")
	}
}

// restart kills the agent, and starts it as it was.
func (s *sidecar) restart() {
	s.agent.Kill()
	s.start()
}

// Istio's own agents, with RSA and ECDSA, get certificates from countersign-ra, renew them, and talk
// to each other all the while: an agent is killed, countersign-ra is updated, and the CA's root is
// exchanged. A virtual machine goes on without its token.
func TestRealIstioAgentsAtTheDoor(t *testing.T) {
	t.Parallel()
	home, dir, b := newRealm(t, "home"), filepath.Join(proctest.Folder(t), "ca"), newBalancer(t)
	config := strings.Replace(forEnvoys, "rules:\n", "  renewals: {identities: [\"spiffe://cluster.local/ns/shop/sa/till\"], longest: 72h}\nrules:\n", 1)
	r := serveEnvoys(t, home, dir, config)
	b.lead(t, r)
	mount := filepath.Join(proctest.Folder(t), "root-cert.pem")
	write(t, mount, read(t, filepath.Join(dir, "ca-cert.pem")))
	ca := caOf{b.address(), mount}

	web := startSidecarWith(t, istioAgent("CA_HEADER_x_tenant=blue"), home, ca, "web", "web-0")
	api := startSidecarWith(t, istioAgent("ECC_SIGNATURE_ALGORITHM=ECDSA"), home, ca, "api", "api-0")
	vm := startIstioMachine(t, home, ca)
	pods, f := []*sidecar{web, api, vm}, &traffic{}
	f.between(t, web, api)
	web.awaitLeaf(t, r, "an RSA key", isFor[*rsa.PublicKey]("web"))
	api.awaitLeaf(t, r, "an ECDSA key", isFor[*ecdsa.PublicKey]("api"))
	awaitEachRenewal(t, r, pods)
	r.until(t, "the machine renews by its certificate", func() bool { return r.report(t).Istio.Calls[istioca.Renewed] >= 2 })

	web.restart()
	vm.restart()
	awaitEachRenewal(t, r, pods)
	r = r.again(t, b, home, dir, config)
	awaitEachRenewal(t, r, pods)
	exchangeRoot(t, dir, mount, pods, r)
	f.flow(t, r, 20)
	f.stop(t)
	for _, text := range []string{r.Log.String(), web.agent.Log.String(), read(t, filepath.Join(r.dir, "audit.log"))} {
		if strings.Contains(text, strings.TrimSpace(read(t, web.token))) || strings.Contains(text, "PRIVATE KEY") {
			t.Error("a token or a key is shown")
		}
	}
}

// awaitEachRenewal waits until each agent has renewed twice.
func awaitEachRenewal(t *testing.T, r *replica, pods []*sidecar) {
	t.Helper()
	serials := map[string]map[string]bool{}
	for _, s := range pods {
		serials[s.name] = map[string]bool{}
	}
	r.until(t, "each agent has renewed", func() bool {
		enough := true
		for _, s := range pods {
			if leaf, _ := pairIn(s.certs); leaf != nil {
				serials[s.name][leaf.SerialNumber.String()] = true
			}
			enough = enough && len(serials[s.name]) > 2
		}
		return enough
	})
}

// isFor demands a kind of key, and the SPIFFE ID of a service account.
func isFor[K any](account string) func(*x509.Certificate, []*x509.Certificate) bool {
	return func(leaf *x509.Certificate, roots []*x509.Certificate) bool {
		_, ok := leaf.PublicKey.(K)
		return ok && len(roots) == 1 && len(leaf.URIs) == 1 && leaf.URIs[0].String() == id("shop/"+account)
	}
}

// startIstioMachine runs what a virtual machine has, set up as docs/istio.md says: a token that is
// bound to no pod, which is gone once there is a certificate.
func startIstioMachine(t *testing.T, home realm, ca caOf) *sidecar {
	t.Helper()
	s := &sidecar{name: "vm"}
	certs := proctest.Folder(t)
	socket := istioAgent("PROV_CERT="+certs, "OUTPUT_CERTS="+certs)(s, t, home.Token("shop", "till", "istio-ca"), ca, "till")
	s.certs = certs
	s.startEnvoy(t, socket)
	s.agent.Until(t, patience, "its certificate is written", func() bool { leaf, _ := pairIn(certs); return leaf != nil })
	if err := os.Remove(s.token); err != nil {
		t.Fatal(err)
	}
	return s
}

// A virtual machine with this repository's agent renews at istiod's CA by its certificate, over a
// restart of the CA.
func TestRealIstiodServesOurMachineWithoutAToken(t *testing.T) {
	t.Parallel()
	home := newRealm(t, "home")
	home.ServiceAccount("vm", "db")
	ca := startIstiod(t, home)
	vm := startMachine(t, ca.address, ca.root.PEM(), home.Token("vm", "db", "istio-ca"))
	renews := func(what string) {
		had := vm.serial()
		vm.Until(t, patience, what, func() bool { now := vm.serial(); return now != "" && now != had })
	}
	renews("its first certificate is written")
	if err := os.Remove(vm.token); err != nil {
		t.Fatal(err)
	}
	renews("it has renewed")
	renews("it has renewed without a token")
	ca.publish(ca.root)
	renews("it has renewed after a restart of the CA")
	if pair, ok := vm.pair(); !ok || len(pair.Leaf.URIs) != 1 || pair.Leaf.URIs[0].String() != databaseID {
		t.Error("the certificate is not for", databaseID)
	}
}

// again starts the program anew, as an update of a Deployment does.
func (r *replica) again(t *testing.T, b *balancer, home realm, ca, config string) *replica {
	t.Helper()
	next := serveEnvoys(t, home, ca, config)
	b.lead(t, next)
	r.Stop(syscall.SIGTERM)
	return next
}
