//go:build e2e && linux

package real_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
)

// arrival is the time between two requests, if the machine is fast enough.
const arrival = 50 * time.Millisecond

// pair is a deployment with two replicas.
type pair struct {
	*deployment
	first, second *replica
	// before are the calls of the first that were before the test's.
	before int
}

// deployPair returns when the first one leads and knows what its CA's certificates are like.
func deployPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{deployment: deploy(t, kubetest.Start(t, kubetest.Options{Nodes: true}))}
	p.ServiceAccount("shop", "web")
	p.Node("one")
	p.first = p.start(counting)
	p.first.awaitLeading()
	p.second = p.start(counting)
	p.second.awaitFollowing()
	p.warmUp()
	p.before = len(p.first.calls())
	return p
}

// stream asks for so many pods, one after the other. It calls then after the one with that number.
func (p *pair) stream(many, at int, then func()) (made []*certificatesv1.PodCertificateRequest) {
	p.t.Helper()
	kubelet := p.ClientFor(p.NodeUser("one"))
	tick := time.NewTicker(arrival)
	defer tick.Stop()
	for i := range many {
		pod := p.CreatePod(kubetest.CertificatePod("shop", fmt.Sprintf("web-%d", i), "web", "one", signer))
		made = append(made, p.askFor(kubelet, pod))
		if i == at {
			then()
		}
		<-tick.C
	}
	return made
}

// A leader that is killed with requests in flight costs none of them.
func TestRealKilledLeaderCostsNoRequest(t *testing.T) {
	t.Parallel()
	const many = 200
	p := deployPair(t)
	requests := p.stream(many, many/2, p.first.kill)
	p.awaitIssued(requests...)
	first, second := p.first.calls()[p.before:], p.second.calls()
	p.checkOnce(first, second)
	repeated := 0
	for _, id := range second {
		if slices.Contains(first, id) {
			repeated++
		}
	}
	t.Logf("the CA was asked %d times by the first, %d by the second, %d of them about requests in flight at the kill", len(first), len(second), repeated)
	// A repeat bears the ID that it had: the provider file makes another certificate of it, a CA
	// that recognizes repeats does not.
	if got := len(first) + len(second) - repeated; got != many {
		t.Errorf("%d requests took %d different calls", many, got)
	}
	p.checkDelivered(requests)
}

// checkOnce reports what one replica asked for twice.
func (p *pair) checkOnce(calls ...[]string) {
	p.t.Helper()
	for _, ids := range calls {
		slices.Sort(ids)
		if got := len(slices.Compact(slices.Clone(ids))); got != len(ids) {
			p.t.Errorf("a replica asked for %d certificates with %d calls", got, len(ids))
		}
	}
}

// checkDelivered compares the certificates of requests with the audit logs. A request can be in
// both: then the first replica was killed before it had delivered its certificate.
func (p *pair) checkDelivered(requests []*certificatesv1.PodCertificateRequest) {
	p.t.Helper()
	by := map[string][]string{} // serials, by request
	for _, a := range slices.Concat(p.first.audit(), p.second.audit()) {
		by[a.Object] = append(by[a.Object], a.Serial)
	}
	for _, r := range p.requests() {
		if !slices.ContainsFunc(requests, func(o *certificatesv1.PodCertificateRequest) bool { return o.UID == r.UID }) {
			continue
		}
		leaf := p.leaf(&r)
		serials := by[string(r.UID)]
		if n := len(serials); n == 0 || n > 2 || serials[n-1] != fmt.Sprintf("%x", leaf.SerialNumber) {
			p.t.Errorf("pod %s has the certificate %x; the audit logs have %s", r.Spec.PodName, leaf.SerialNumber, serials)
		}
	}
}

// A leader that was stopped for longer than its Lease finds requests that nobody has served yet
// when it goes on, and calls no CA.
func TestRealStoppedLeaderCallsNoCA(t *testing.T) {
	t.Parallel()
	const many = 60
	p := deployPair(t)
	away := filepath.Join(p.second.dir, "outage")
	must(t, os.WriteFile(away, nil, 0o600)) // the second one's CA
	p.first.Signal(syscall.SIGSTOP)
	requests := p.stream(many, many/2, func() {
		p.second.awaitLeading()
		p.first.Signal(syscall.SIGCONT)
		p.first.awaitFollowing()
		must(t, os.Remove(away))
	})
	p.awaitIssued(requests...)
	if got := len(p.first.calls()); got != p.before {
		t.Errorf("the first called its CA %d times after it had been stopped", got-p.before)
	}
	if got := len(p.second.calls()); got != many {
		t.Errorf("%d requests took %d calls", many, got)
	}
	p.checkDelivered(requests)
}
