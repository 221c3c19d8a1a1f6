//go:build e2e && linux && long

package real_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/countersign-dev/countersign/kubernetes/kubetest"
	"github.com/countersign-dev/countersign/ra"
	"github.com/countersign-dev/countersign/sdk/catest"
	"github.com/countersign-dev/countersign/sdk/pki"
)

// Kubernetes has no settings for these times: kube-controller-manager deletes requests 15 to 20
// minutes old, a kubelet asks anew for one that is gone after 10 to 15, a certificate lives for an
// hour at least. (`make check NAME=kubernetes-long`)
func TestRealLongOutagesAndRenewals(t *testing.T) {
	t.Parallel()
	l := openLong(t)
	var parts sync.WaitGroup // t.Parallel runs as many as there are cores
	for name, part := range map[string]func(*long){
		"pods start after an outage longer than a request": (*long).testOutage,
		"a running pod gets its next certificate in time":  (*long).testRenewal,
		"also if the CA was away when it asked":            (*long).testLateRenewal,
		"a new root arrives before leaves below it":        (*long).testNewRoot,
	} {
		parts.Go(func() { t.Run(name, func(t *testing.T) { part(l.in(t)) }) })
	}
	parts.Wait()
	t.Logf("%8s: %d requests, %d certificates of the CA", l.history.passed(), len(l.history.all()), len(l.ca.Requests()))
}

// long is a registrar in front of a CA that can be away for some pods.
type long struct {
	*registrar
	history *history
	away    *away
	nodes   map[string]*kubetest.Node
	first   map[string]files // of the pods that run from the start
	old     *pki.Bundle      // the root that the CA had then
	waiting []string         // pods for whom the CA is away
}

const (
	steady, late, fresh = "steady", "late", "fresh"
	waitingPods         = 10
	renewed             = 45 * time.Minute // after 22 to 34, 5 of jitter, and two passes of the kubelet
)

func openLong(t *testing.T) *long {
	t.Helper()
	l := &long{away: &away{refused: map[string]int{}}, nodes: map[string]*kubetest.Node{}, first: map[string]files{}}
	authority := namingCA{catest.NewCA(catest.Options{NamesFromRequest: true, Intermediates: 1}), l.away.refuse}
	l.registrar = openWith(t, kubetest.Start(t, kubetest.Options{Nodes: true}), authority, ra.Limits{})
	l.history = l.watch(t)
	l.ServiceAccount("shop", "web")
	for _, n := range l.HollowNodes("one", "two") {
		l.nodes[n.Name] = n
	}
	l.warmUp()
	l.start(steady, "one")
	l.start(late, "two")
	l.away.from(late)
	l.rotate()
	for i := range waitingPods {
		l.waiting = append(l.waiting, fmt.Sprintf("waiting-%d", i))
	}
	l.away.from(l.waiting...)
	for i, name := range l.waiting {
		l.AwaitRequest(l.create(name, []string{"one", "two"}[i%2]))
	}
	l.Controllers() // the cleaner looks every 5 minutes from now on, and these are older
	return l
}

// rotate has the CA sign below a new root, which it told nobody before. It returns when the CA
// has, for a pod that gets nothing yet: the engine asks for no other certificate for 10 minutes.
func (l *long) rotate() {
	l.t.Helper()
	l.old = l.ca.Bundle()
	l.ca.Rotate()
	l.create(fresh, "two")
	l.within(time.Minute, "nothing is asked for pod "+fresh, func() bool { return l.made(fresh) > 0 })
}

// in returns the same registrar for a part of the test.
func (l *long) in(t *testing.T) *long {
	part, o := *l, *l.registrar
	o.t = t
	part.registrar = &o
	return &part
}

// create creates a pod with the shortest certificates that there are.
func (l *long) create(name, node string) *corev1.Pod {
	l.t.Helper()
	pod := kubetest.CertificatePod("shop", name, "web", node, signer)
	pod.Spec.Volumes[0].Projected.Sources[0].PodCertificate.MaxExpirationSeconds = new(int32(60 * 60))
	return l.CreatePod(pod)
}

func (l *long) start(name, node string) {
	l.t.Helper()
	l.AwaitRunning(l.create(name, node))
	l.first[name] = l.now(name)
}

// now returns the files of a pod.
func (l *long) now(name string) files {
	l.t.Helper()
	pod, err := l.Client().CoreV1().Pods("shop").Get(l.t.Context(), name, metav1.GetOptions{})
	must(l.t, err)
	return l.files(l.nodes[pod.Spec.NodeName], pod)
}

// within waits for something that takes minutes.
func (l *long) within(limit time.Duration, what string, so func() bool) {
	l.t.Helper()
	within(l.t, limit, what, so)
}

// within waits for something that takes minutes.
func within(t testing.TB, limit time.Duration, what string, so func() bool) {
	t.Helper()
	look, end := time.NewTicker(time.Second), time.After(limit)
	defer look.Stop()
	for !so() {
		select {
		case <-look.C:
		case <-end:
			t.Fatalf("after %s: %s", limit, what)
		}
	}
}

func (l *long) awaitPods(limit time.Duration, names ...string) {
	l.t.Helper()
	for _, name := range names {
		l.within(limit, "pod "+name+" does not run", func() bool {
			pod, err := l.Client().CoreV1().Pods("shop").Get(l.t.Context(), name, metav1.GetOptions{})
			must(l.t, err)
			return pod.Status.Phase == corev1.PodRunning
		})
	}
	l.t.Logf("%8s: running: %q", l.history.passed(), names)
}

func (l *long) testOutage() {
	for _, name := range l.waiting {
		l.within(25*time.Minute, "the kubelet has not asked anew for pod "+name, func() bool {
			asked := l.history.of(name)
			return len(asked) > 1 && !asked[0].deleted.IsZero()
		})
	}
	l.t.Logf("%8s: the CA is back; it was asked %d times for these pods", l.history.passed(), l.away.count(l.waiting...))
	l.away.end(l.waiting...)
	l.awaitPods(5*time.Minute, l.waiting...)
	for _, name := range l.waiting {
		asked, made := l.history.of(name), l.made(name)
		if len(asked) != 2 || asked[0].kind != "" || asked[1].kind != issued || made != 1 {
			l.t.Errorf("pod %s has %d certificates of the CA, and these requests: %+v", name, made, asked)
		}
	}
}

// made is how many certificates the CA has made for a pod.
func (l *long) made(pod string) (n int) {
	for _, r := range l.ca.Requests() {
		if podOf(r) == pod {
			n++
		}
	}
	return n
}

func (l *long) testRenewal() { l.awaitRenewal(steady, late) }

func (l *long) testLateRenewal() {
	const often = 5
	l.within(renewed, "the CA is not asked for the next certificate", func() bool { return l.away.count(late) >= often })
	if asked := l.history.of(late); len(asked) != 2 || asked[1].kind != "" {
		l.t.Errorf("while the CA is away: %+v", asked)
	}
	l.checkPeers(l.now(late), l.now(steady), steady)
	l.t.Logf("%8s: the CA is back; it was asked %d times for pod %s", l.history.passed(), l.away.count(late), late)
	l.away.end(late)
	l.awaitRenewal(late, steady)
}

// awaitRenewal compares the next certificate of a pod with its first one.
func (l *long) awaitRenewal(name, peer string) {
	l.t.Helper()
	first := l.first[name]
	l.within(renewed, "pod "+name+" has its first certificate still", func() bool { return string(l.now(name).credentials) != string(first.credentials) })
	next := l.now(name)
	before, after := first.pair(l.t)[0], next.pair(l.t)[0]
	left := time.Until(before.Leaf.NotAfter).Round(time.Second)
	l.t.Logf("%8s: pod %s has its next certificate, %s before the end of the first", l.history.passed(), name, left)
	if left <= 0 || !after.Leaf.NotAfter.After(before.Leaf.NotAfter) {
		l.t.Errorf("the first ended at %s, the next does at %s", before.Leaf.NotAfter, after.Leaf.NotAfter)
	}
	if before.Leaf.PublicKey.(*ecdsa.PublicKey).Equal(after.Leaf.PublicKey) {
		l.t.Error("both have the same key")
	}
	if asked := l.history.of(name); len(asked) != 2 || asked[1].kind != issued || l.made(name) != 2 {
		l.t.Errorf("two certificates took %d of the CA, and %+v", l.made(name), asked)
	}
	l.checkPeers(next, l.now(peer), peer)
}

// checkPeers has a pod and its peer verify each other.
func (l *long) checkPeers(pod, peer files, peerName string) {
	l.t.Helper()
	shakeHands(l.t, pod, peer, peerName+".shop.svc")
	verifySVID(l.t, peer, pod, "spiffe://example.org/ns/shop/sa/web")
}

func (l *long) testNewRoot() {
	for _, name := range []string{steady, late} {
		l.within(5*time.Minute, "pod "+name+" has not both roots", func() bool { return l.hasBoth(name) })
		l.t.Logf("%8s: pod %s has both roots", l.history.passed(), name)
	}
	arrived := time.Now()
	l.awaitPods(15*time.Minute, fresh)
	below := 0
	for _, r := range l.history.all() {
		if r.kind == issued && l.isNew(r) {
			below++
			if r.issued.Before(arrived) {
				l.t.Errorf("pod %s has a certificate below the new root %s too early", r.pod, arrived.Sub(r.issued))
			}
		}
	}
	if below == 0 {
		l.t.Error("no certificate is below the new root")
	}
	for _, name := range []string{steady, late, fresh} {
		if !l.hasBoth(name) {
			l.t.Errorf("pod %s has not both roots when there are leaves below both", name)
		}
	}
	l.checkPeers(l.now(fresh), l.now(steady), steady)
	l.checkPeers(l.now(steady), l.now(fresh), fresh)
}

func (l *long) hasBoth(pod string) bool {
	l.t.Helper()
	roots, err := pki.ParseBundle(l.now(pod).roots)
	must(l.t, err)
	has := func(b *pki.Bundle) bool { return b.Filter(roots.Contains).Len() == b.Len() }
	return has(l.old) && has(l.ca.Bundle())
}

// isNew reports whether a certificate is below the new root.
func (l *long) isNew(r life) bool {
	l.t.Helper()
	chain, err := pki.ParseCertificates(r.chain)
	must(l.t, err)
	return l.ca.Bundle().Filter(func(root *x509.Certificate) bool { return chain[len(chain)-1].CheckSignatureFrom(root) == nil }).Len() > 0
}
