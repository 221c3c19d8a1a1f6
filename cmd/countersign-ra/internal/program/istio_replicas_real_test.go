//go:build e2e && linux

package program

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/internal/test/certtest"
	"github.com/countersign-dev/countersign/internal/test/proctest"
	"github.com/countersign-dev/countersign/internal/test/programs"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// balancer is the one address of several replicas, as a Service is: a connection goes to one that
// takes it, in turn, and ends with it.
type balancer struct {
	listener net.Listener
	all      sync.WaitGroup

	mu       sync.Mutex
	replicas []string
	turn     int
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener}
	b.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b.all.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		b.all.Wait()
	})
	return b
}

func (b *balancer) address() string { return b.listener.Addr().String() }

// lead leads to these replicas from now on.
func (b *balancer) lead(t *testing.T, to ...*replica) {
	t.Helper()
	var addresses []string
	for _, r := range to {
		addresses = append(addresses, r.report(t).Istio.Address)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = addresses
}

func (b *balancer) next() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn = (b.turn + 1) % len(b.replicas)
	return append(slices.Clone(b.replicas[b.turn:]), b.replicas[:b.turn]...)
}

func (b *balancer) serve(client net.Conn) {
	defer client.Close()
	for _, address := range b.next() {
		server, err := net.Dial("tcp", address)
		if err != nil {
			continue // its process is gone
		}
		var both sync.WaitGroup
		both.Go(func() { pass(server, client) })
		pass(client, server)
		both.Wait()
		return
	}
}

// pass copies until one end is closed, and closes both.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}

// forEnvoys is a configuration for a mesh of one real cluster, whose certificates are as short as a
// test is. As agents renew them within 3 s, the usual budget of a holder would be used up in half a
// minute, and no certificate be renewed for five.
const forEnvoys = `
cluster: {id: home, kubeconfig: DIR/kube.yaml}
dev: true
providers: [{name: file, accept_longer_ttl: true, settings: {dir: CA, self_signed: true, poll_interval: 100ms}}]
authorities: [{name: file, limits: {rate: 1000}, roots: {wait: 1s, unplanned: 1s, interval: 1s, by_reply: true}}]
istio:
  listen: 127.0.0.1:0
  certificate: {dns_names: [countersign-ra.countersign.svc]}
rules:
- name: mesh
  match: {requests: [istio], namespaces: [shop]}
  names: {spiffe_id: "spiffe://cluster.local/ns/{namespace}/sa/{serviceAccount}"}
  max_ttl: 30s
budget: {holder: 1000, holder_every: 15s}
audit: {file: DIR/audit.log}
leader_election: {duration: 5s}
status: {address: 'unix:DIR/page'}
`

// serveEnvoys runs the program that is shipped, as a replica in front of the CA of a folder.
func serveEnvoys(t *testing.T, home realm, ca, config string) *replica {
	t.Helper()
	dir := files(t, nil, strings.ReplaceAll(config, "dir: CA", "dir: "+ca))
	write(t, filepath.Join(dir, "kube.yaml"), home.kubeconfig())
	cmd := exec.Command(programs.Path(t, "countersign-ra"), "serve", "--config", filepath.Join(dir, "c.yaml"))
	cmd.Env = append(proctest.Environ(dir), "COUNTERSIGN_PROVIDER_PATH="+programs.Folder(t, "countersign-provider-file", "countersign-provider-vault"))
	r := launch(t, dir, cmd)
	r.until(t, "it is ready", func() bool { return r.readyz() == http.StatusOK })
	return r
}

// awaitTrusted waits until certificates of a mesh below a root are given out.
func (r *replica) awaitTrusted(t *testing.T, root *x509.Certificate) {
	t.Helper()
	r.until(t, "the root is trusted", func() bool {
		for _, a := range r.report(t).Istio.Authorities {
			for _, known := range a.Roots {
				if known.Fingerprint == pki.Fingerprint(root) && known.Phase == "trusted" {
					return true
				}
			}
		}
		return false
	})
}

// put exchanges files of a CA's folder, each at once.
func put(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, content := range files {
		write(t, filepath.Join(dir, name+".new"), string(content))
		if err := os.Rename(filepath.Join(dir, name+".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func below(root *x509.Certificate) func(leaf *x509.Certificate, _ []*x509.Certificate) bool {
	return func(leaf *x509.Certificate, _ []*x509.Certificate) bool { return leaf.CheckSignatureFrom(root) == nil }
}

// Two pods talk while their agents renew, a replica is killed, another comes, and the CA's root
// is exchanged as docs/istio.md says: published, trusted, used, and the old one removed.
func TestRealEnvoysTalkWhileReplicasAreKilledAndTheRootChanges(t *testing.T) {
	t.Parallel()
	home, dir := newRealm(t, "home"), filepath.Join(proctest.Folder(t), "ca")
	first := serveEnvoys(t, home, dir, forEnvoys)
	second, b := serveEnvoys(t, home, dir, forEnvoys), newBalancer(t)
	b.lead(t, first, second)
	mount := filepath.Join(proctest.Folder(t), "root-cert.pem")
	write(t, mount, read(t, filepath.Join(dir, "ca-cert.pem")))
	ca := caOf{b.address(), mount}
	pods := []*sidecar{startSidecar(t, home, ca, "web", "web-0"), startSidecar(t, home, ca, "api", "api-0")}
	f := &traffic{}
	f.between(t, pods...)
	renewed := func(times int) {
		for _, s := range pods {
			s.awaitRenewals(t, second, times)
		}
	}
	renewed(2)

	first.kills = true
	first.Kill() // it leads
	renewed(2)
	third := serveEnvoys(t, home, dir, forEnvoys)
	b.lead(t, second, third)
	renewed(2)

	exchangeRoot(t, dir, mount, pods, second, third)
	f.flow(t, third, 20)
	second.kills = true
	second.Kill()
	for _, s := range pods {
		s.awaitRenewals(t, third, 2)
	}
	f.flow(t, third, 20)
	f.stop(t)
}

// exchangeRoot exchanges the root of the CA in a folder: both are published, the new one is used, and
// the old one goes.
func exchangeRoot(t *testing.T, dir, mount string, pods []*sidecar, replicas ...*replica) {
	t.Helper()
	old, next := certsIn(t, filepath.Join(dir, "ca-cert.pem"))[0], certtest.Root(t)
	each := func(what string, wanted func(leaf *x509.Certificate, roots []*x509.Certificate) bool) {
		for _, s := range pods {
			s.awaitLeaf(t, replicas[0], what, wanted)
		}
	}
	both := pki.EncodeCertificates([]*x509.Certificate{old, next.Cert})
	put(t, dir, map[string][]byte{"root-cert.pem": both})
	put(t, filepath.Dir(mount), map[string][]byte{"root-cert.pem": both})
	each("both roots", func(_ *x509.Certificate, roots []*x509.Certificate) bool { return len(roots) == 2 })
	for _, r := range replicas {
		r.awaitTrusted(t, next.Cert)
	}
	put(t, dir, map[string][]byte{"ca-key.pem": keyText(t, next), "ca-cert.pem": pki.EncodeCertificates([]*x509.Certificate{next.Cert})})
	each("a leaf below the new root", below(next.Cert))
	put(t, dir, map[string][]byte{"root-cert.pem": pki.EncodeCertificates([]*x509.Certificate{next.Cert})})
}

func certsIn(t *testing.T, path string) []*x509.Certificate {
	t.Helper()
	certs, err := pki.ParseCertificates([]byte(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

func keyText(t *testing.T, pair *certtest.Pair) []byte {
	t.Helper()
	key, err := pki.EncodeKey(pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
